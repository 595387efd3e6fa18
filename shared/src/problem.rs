//! Problems: an error as data. What a client is told, and what is stored with a failed job.

use serde::{Deserialize, Serialize};

use crate::code::{Code, HasCode};

/// An error as a client is told it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// The stable code.
    pub code: Code,
    /// The status, where it is not the code's usual one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// What is wrong, for people. Absent for errors of ours, whose cause goes to the log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// The fields that are wrong.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<FieldProblem>,
}

/// One field that is wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct FieldProblem {
    /// Where: the path in the body, or the parameter's name.
    pub path: String,
    /// What is wrong with it.
    pub message: String,
}

impl Problem {
    /// A problem that its code explains.
    pub const fn new(code: Code) -> Self {
        Self { code, status: None, detail: None, fields: Vec::new() }
    }

    /// A problem with a sentence of its own.
    pub fn with_detail(code: Code, detail: impl Into<String>) -> Self {
        Self { detail: Some(detail.into()), ..Self::new(code) }
    }

    /// Bad input in one field (422).
    pub fn field(path: impl Into<String>, message: impl Into<String>) -> Self {
        let (path, message) = (path.into(), message.into());
        let detail = format!("{path}: {message}");
        Self {
            detail: Some(detail),
            fields: vec![FieldProblem { path, message }],
            ..Self::new(Code::InvalidRequest)
        }
    }

    /// The same as a request that could not even be read (400).
    #[must_use]
    pub fn unreadable(mut self) -> Self {
        self.status = Some(400);
        self
    }

    /// The HTTP status.
    pub fn status(&self) -> u16 {
        self.status.unwrap_or(self.code.status())
    }
}

/// The single conversion from errors to problems. Errors of ours keep their cause to the log.
impl<E: std::error::Error + HasCode> From<E> for Problem {
    fn from(error: E) -> Self {
        let code = error.code();
        if code.status() < 500 {
            return Self::with_detail(code, error.to_string());
        }
        tracing::error!(code = code.as_str(), error = %chain(&error), "request failed");
        Self::new(code)
    }
}

/// An error with all its causes, in one line.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}

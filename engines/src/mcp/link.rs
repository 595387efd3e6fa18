//! Whether a server is there, and when it may be started again.

use std::sync::Arc;

use tokio::time::Instant;

use super::connection::Connection;
use super::settings::Settings;

/// The way to a server.
#[derive(Debug, Default)]
pub(super) struct Link {
    state: State,
    /// When the server was last started for another reason than that it was first needed.
    restarted: Option<Instant>,
}

#[derive(Debug, Default)]
enum State {
    /// It has not been needed yet.
    #[default]
    Idle,
    Up(Arc<Connection>),
    /// It is not there, and is not tried before a time.
    Down {
        reason: String,
        until: Instant,
    },
}

impl Link {
    /// The connection, if it lives. `None`: it is to be made now. An error: the server is not tried for a while.
    pub(super) fn current(&mut self, settings: &Settings) -> Result<Option<Arc<Connection>>, String> {
        let now = Instant::now();
        match &self.state {
            State::Idle => Ok(None),
            State::Up(connection) if connection.is_alive() => Ok(Some(Arc::clone(connection))),
            State::Up(connection) => {
                connection.log_end(settings);
                if self.restarted.is_some_and(|at| now.duration_since(at) < settings.back_off) {
                    let reason = "it ended again soon after it was started anew";
                    self.down(settings, reason);
                    return Err(reason.to_owned());
                }
                self.restart(now);
                Ok(None)
            }
            State::Down { reason, until } if now < *until => Err(reason.clone()),
            State::Down { .. } => {
                self.restart(now);
                Ok(None)
            }
        }
    }

    /// What is left of the old connection ends here.
    fn restart(&mut self, now: Instant) {
        self.restarted = Some(now);
        self.state = State::Idle;
    }

    pub(super) fn up(&mut self, connection: Connection) -> Arc<Connection> {
        let connection = Arc::new(connection);
        self.state = State::Up(Arc::clone(&connection));
        connection
    }

    pub(super) fn down(&mut self, settings: &Settings, reason: &str) {
        tracing::warn!(server = settings.name, reason, "an MCP server is unavailable");
        self.state = State::Down { reason: reason.to_owned(), until: Instant::now() + settings.back_off };
    }
}

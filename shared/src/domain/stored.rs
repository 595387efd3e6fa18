//! Events that a transaction leaves in the store, to be published after its commit.

use super::{EventName, LeaseToken, NewEvent, SessionId};

/// Events that were stored with what they tell of. Whoever publishes them does so together, after the session's earlier ones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// Their id. Ascending within a session, in the order of the transactions.
    pub id: i64,
    /// The session.
    pub session: SessionId,
    /// Where they stand among the events of the run that stored them; `None`: no run did.
    pub place: Option<Place>,
    /// The events, in order.
    pub events: Vec<NewEvent>,
}

/// A place among the events of a run, which are numbered from 1 without holes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// The run's lease.
    pub token: LeaseToken,
    /// The number.
    pub entry: i64,
}

impl NewEvent {
    /// The event in one line: `name job turn data`. JSON of ours has no raw line breaks.
    pub fn to_line(&self) -> String {
        let job = self.job.map_or_else(|| "-".to_owned(), |job| job.to_string());
        let turn = self.turn.map_or_else(|| "-".to_owned(), |turn| turn.to_string());
        format!("{} {job} {turn} {}", self.name, self.data)
    }

    /// The event of such a line; `None` where it has another form.
    pub fn from_line(line: &str) -> Option<Self> {
        let mut parts = line.splitn(4, ' ');
        let name = EventName::from_name(parts.next()?)?;
        let (job, turn) = (parts.next()?.parse().ok(), parts.next()?.parse().ok());
        Some(Self { name, job, turn, data: parts.next()?.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::JobId;

    #[test]
    fn lines_read_back_as_written() {
        let job = Some(JobId::generate());
        let data = r#"{"text":"a b\nc"}"#.to_owned();
        let event = NewEvent { name: EventName::MessageDelta, job, turn: None, data };
        assert_eq!(NewEvent::from_line(&event.to_line()), Some(event));
        assert_eq!(NewEvent::from_line("message.delta - -"), None);
        assert_eq!(NewEvent::from_line("unheard.of - - {}"), None);
    }
}

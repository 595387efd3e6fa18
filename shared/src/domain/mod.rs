//! The nouns of Roundhouse as plain data. No I/O.

mod agent;
mod answer;
mod cut;
mod event;
mod ids;
mod interaction;
mod job;
mod lease;
mod message;
mod session;
mod stored;
mod view;
mod worker;

pub use agent::{Agent, AgentStatus, EngineKind, LeftOutTool};
pub use answer::{CANCELLED_TEXT, ChatResult, ContextSource, TokenUsage, Usage};
pub use cut::{Cut, CutResult, Fork, JobResult};
pub use event::{Event, EventKind, EventName, NewEvent, Scope, Snapshot};
pub use ids::{
    EventId, InteractionId, JobId, LeaseToken, MessageId, ParseIdError, SessionId, TurnId, WorkerId,
};
pub use interaction::{Decision, Interaction, InteractionAnswer, InteractionKind, InteractionState};
pub use job::{Job, JobKind, JobState, Lane, OnBusy, SessionJob};
pub use lease::Lease;
pub use message::{Anchor, Message, Role, Truncated};
pub use session::{Session, SessionStatus};
pub use stored::{Place, Stored};
pub use view::{InteractionView, MessageView};
pub use worker::{HeldLease, Worker};

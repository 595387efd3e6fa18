//! The HTTP side of Roundhouse: admits work, waits for answers, streams events

//! A Redis that answers and refuses writes: full, a replica, or without a disk.

use roundhouse_shared::bus::{Bus, BusError, Followed, Numbering};
use roundhouse_shared::domain::SessionId;
use roundhouse_shared::problem::chain;

use crate::site::{event, next, next_event, publish, text, up};
use crate::support::{Keeps, Refusal, Server};

#[tokio::test]
async fn a_server_that_refuses_writes_is_away_until_it_takes_them() {
    for refusal in [Refusal::Full, Refusal::Replica, Refusal::CannotSave] {
        let server = Server::running(Keeps::Nothing).await;
        let (bus, session) = (Bus::connect(&server.settings()).unwrap(), SessionId::generate());
        up(&bus).await;
        let mut follow = bus.follow(session, None).await;
        publish(&bus, session, &["before"]).await;
        assert_eq!(text(&next_event(&mut follow).await), "before");

        server.refuse(refusal).await;
        for _ in 0..2 {
            let published = bus.publish(session, None, Numbering::Continue, &[event("refused")]).await;
            let pinged = bus.ping().await;
            for error in [published.unwrap_err(), pinged.unwrap_err()] {
                assert!(matches!(error, BusError::Unavailable(Some(_))), "{refusal:?}: {error:?}");
                assert!(chain(&error).contains(refusal.code()), "{refusal:?}: {}", chain(&error));
            }
        }

        server.accept(refusal).await;
        up(&bus).await;
        publish(&bus, session, &["after"]).await;
        // A server that was a replica for a while is another one: then there is a gap before it.
        let after = loop {
            if let Followed::Event(event) = next(&mut follow).await {
                break event;
            }
        };
        assert_eq!(text(&after), "after", "{refusal:?}");
    }
}

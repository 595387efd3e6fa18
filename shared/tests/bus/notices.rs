//! Notices reach everybody who listens.

use roundhouse_shared::bus::Notice;
use roundhouse_shared::domain::{JobId, SessionId, TurnId};
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;

use crate::site::{Site, up};
use crate::support::soon;

on_both! {
    a_notice_reaches_all_receivers_of_all_processes,
    a_receiver_that_lags_is_told_and_goes_on,
}

fn notices() -> [Notice; 3] {
    let session = SessionId::generate();
    [
        Notice::Ended(session, JobId::generate()),
        Notice::Mail(session),
        Notice::Cancel(session, TurnId::generate()),
    ]
}

async fn heard(receiver: &mut Receiver<Notice>) -> Result<Notice, RecvError> {
    soon("a notice", receiver.recv()).await
}

async fn a_notice_reaches_all_receivers_of_all_processes(site: Site) {
    let buses = [site.bus(), site.bus(), site.bus()];
    let mut receivers = Vec::new();
    for bus in &buses {
        up(bus).await;
        receivers.extend([bus.notices(), bus.notices()]);
    }
    for bus in &buses {
        let notices = notices();
        bus.notify(&[]).await;
        bus.notify(&notices).await;
        for receiver in &mut receivers {
            for notice in notices {
                assert_eq!(heard(receiver).await, Ok(notice));
            }
        }
    }
}

async fn a_receiver_that_lags_is_told_and_goes_on(site: Site) {
    let (bus, other) = (site.bus(), site.bus());
    up(&other).await;
    let (mut lagging, mut following) = (other.notices(), other.notices());
    let last = Notice::Mail(SessionId::generate());
    for _ in 0..100 {
        bus.notify(&[Notice::Mail(SessionId::generate()); 50]).await;
    }
    bus.notify(&[last]).await;
    while !matches!(heard(&mut following).await, Ok(notice) if notice == last) {}
    assert!(matches!(heard(&mut lagging).await, Err(RecvError::Lagged(_))));
    while !matches!(heard(&mut lagging).await, Ok(notice) if notice == last) {}
}

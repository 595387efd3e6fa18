//! The one subscription connection of a process.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::StreamExt;
use redis::aio::{PubSubSink, PubSubStream};
use redis::{Client, Msg, RedisError};
use tokio::sync::broadcast;

use super::{Names, decode_all};
use crate::bus::Notice;
use crate::bus::topics::Topics;
use crate::domain::SessionId;
use crate::redis::{CONNECT_TIMEOUT, RECONNECT_DELAY, RESPONSE_TIMEOUT};

/// How often a silent connection is tried: one that died without a word is noticed.
const PING: Duration = Duration::from_secs(5);
/// Channels named in one command.
const CHANNELS: usize = 500;

/// The task that receives what is published.
pub(super) struct Subscription {
    pub(super) client: Client,
    pub(super) names: Names,
    pub(super) topics: Arc<Topics>,
    pub(super) notices: broadcast::Sender<Notice>,
    pub(super) subscribed: Arc<AtomicBool>,
}

impl Subscription {
    /// Runs for ever: connects, subscribes to everything that is followed, and again after each outage.
    pub(super) async fn run(self) {
        let mut told = false;
        loop {
            let error = match tokio::time::timeout(CONNECT_TIMEOUT, self.client.get_async_pubsub()).await {
                Ok(Ok(connection)) => {
                    let (sink, stream) = connection.split();
                    let ended = self.serve(sink, stream, &mut told).await;
                    self.subscribed.store(false, Ordering::Release);
                    ended.err()
                }
                Ok(Err(error)) => Some(error),
                Err(_) => None,
            };
            if !told {
                told = true;
                let error = error.map_or_else(|| "no answer".to_owned(), |error| error.to_string());
                tracing::warn!(error, "no subscription to Redis; trying again until there is one");
            }
            tokio::time::sleep(RECONNECT_DELAY).await;
        }
    }

    async fn serve(
        &self,
        mut sink: PubSubSink,
        mut stream: PubSubStream,
        told: &mut bool,
    ) -> Result<(), RedisError> {
        let mut channels = HashSet::new();
        within(sink.subscribe(self.names.notices())).await?;
        self.topics.take_changed();
        self.update(&mut sink, &mut channels, self.topics.sessions()).await?;
        self.subscribed.store(true, Ordering::Release);
        if std::mem::take(told) {
            tracing::info!("subscribed to Redis again");
        }
        let mut ping = tokio::time::interval(PING);
        ping.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                message = stream.next() => match message {
                    Some(message) => self.take(&message),
                    None => return Ok(()),
                },
                () = self.topics.change.notified() => {
                    self.update(&mut sink, &mut channels, self.topics.take_changed()).await?;
                }
                _ = ping.tick() => within(sink.ping::<()>()).await?,
            }
        }
    }

    /// Subscribes to what is followed now and leaves what is not.
    async fn update(
        &self,
        sink: &mut PubSubSink,
        channels: &mut HashSet<SessionId>,
        changed: Vec<SessionId>,
    ) -> Result<(), RedisError> {
        let (wanted, left): (Vec<_>, Vec<_>) =
            changed.into_iter().partition(|session| self.topics.find(*session).is_some());
        let left: Vec<_> = left.into_iter().filter(|session| channels.remove(session)).collect();
        for some in left.chunks(CHANNELS) {
            let names: Vec<_> = some.iter().map(|session| self.names.channel(*session)).collect();
            within(sink.unsubscribe(names)).await?;
        }
        let new: Vec<_> = wanted.into_iter().filter(|session| channels.insert(*session)).collect();
        for some in new.chunks(CHANNELS) {
            let names: Vec<_> = some.iter().map(|session| self.names.channel(*session)).collect();
            within(sink.subscribe(names)).await?;
            for topic in some.iter().filter_map(|session| self.topics.find(*session)) {
                // Anything may have been published while nobody listened: whoever follows asks the log.
                topic.state().ring.forget();
                topic.ring_bell();
            }
        }
        Ok(())
    }

    fn take(&self, message: &Msg) {
        let channel = message.get_channel_name();
        let Ok(payload) = message.get_payload::<String>() else { return };
        if channel == self.names.notices() {
            if let Ok(notice) = serde_json::from_str(&payload) {
                // Nobody listening is fine.
                let _ = self.notices.send(notice);
            }
            return;
        }
        let Some(topic) = self.names.session_of(channel).and_then(|session| self.topics.find(session)) else {
            return;
        };
        match decode_all(&payload) {
            Some(events) => {
                let mut state = topic.state();
                for event in events {
                    state.ring.push(event);
                }
            }
            // Written by a newer version: whoever follows asks the log, and is told of the gap there.
            None => topic.state().ring.forget(),
        }
        topic.ring_bell();
    }
}

async fn within<T>(call: impl Future<Output = Result<T, RedisError>>) -> Result<T, RedisError> {
    match tokio::time::timeout(RESPONSE_TIMEOUT, call).await {
        Ok(done) => done,
        Err(_) => Err(std::io::Error::from(std::io::ErrorKind::TimedOut).into()),
    }
}

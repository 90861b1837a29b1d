//! A connected proxy, with the subscriptions it is served from.

use std::sync::Arc;

use canopus_engine::{QueryError, Root};
use canopus_envoy::config_keys::ConfigKeysOf;
use canopus_xds::types::Types;
use canopus_xds::{Interest, ResourceSet};
use parking_lot::Mutex;

use super::shared_subscription::{SharedSubscription, SharedSubscriptions};
use crate::family::Selection;
use crate::push::{ChangeSignal, Connection, Dispatcher, Pending, Subscription};

/// A connected proxy.
pub struct Client {
    /// What is known of the connection.
    pub connection: Arc<Connection>,
    keys: Root<ConfigKeysOf>,
    /// Raised when the keys change.
    signal: Arc<ChangeSignal>,
    _subscription: Subscription,
    subscriptions: Mutex<Vec<ClientSubscription>>,
}

/// The part of a client in a shared subscription.
struct ClientSubscription {
    type_url: Box<str>,
    interest: Interest,
    shared: Arc<SharedSubscription>,
    /// Whether it is still the subscription for the keys of the proxy.
    is_current: bool,
    _subscription: Subscription,
}

impl Client {
    pub(super) fn new(dispatcher: &Dispatcher, connection: Arc<Connection>) -> Self {
        let keys = dispatcher.engine().watch::<ConfigKeysOf>(connection.proxy.clone());
        let signal = ChangeSignal::new(Types::ALL);
        dispatcher.signal_changes([keys.id()], &signal);
        let subscription = signal.subscribe(connection.id);
        Self { connection, keys, signal, _subscription: subscription, subscriptions: Mutex::default() }
    }

    /// What it gets of a type; `None` if there is nothing to get of it.
    pub(super) fn resources(
        &self,
        dispatcher: &Dispatcher,
        subscriptions: &SharedSubscriptions,
        type_url: &str,
        interest: &Interest,
    ) -> Result<Option<ResourceSet>, QueryError> {
        if let Some(overlay) = dispatcher.overlays().get(self.connection.id) {
            let made =
                || subscriptions.overlaid(dispatcher, &overlay, &self.connection.proxy, type_url, interest);
            return tokio::task::block_in_place(made);
        }
        if let Some(shared) = self.current(type_url, interest) {
            return shared.read(&subscriptions.pool).map(Some);
        }
        let keys = self.keys.value()?;
        let selection = Selection::new(type_url, &self.connection.proxy, &keys, interest);
        let Some(selection) = selection else { return Ok(None) };
        let shared = match subscriptions.find(&selection) {
            Some(shared) => shared,
            // Evaluating may take long, and other sessions of the thread must not wait for it.
            None => tokio::task::block_in_place(|| subscriptions.open(dispatcher, type_url, selection)),
        };
        // The session subscribes before it reads, so that it is woken by whatever changes afterwards.
        let subscription = shared.signal().subscribe(self.connection.id);
        let set = shared.read(&subscriptions.pool);
        self.replace(ClientSubscription {
            type_url: type_url.into(),
            interest: interest.clone(),
            shared,
            is_current: true,
            _subscription: subscription,
        });
        set.map(Some)
    }

    /// The subscription it has for this, if its keys are still the same.
    fn current(&self, type_url: &str, interest: &Interest) -> Option<Arc<SharedSubscription>> {
        let mut subscriptions = self.subscriptions.lock();
        if self.signal.take() != Pending::Nothing {
            subscriptions.iter_mut().for_each(|subscription| subscription.is_current = false);
        }
        let found = subscriptions.iter().find(|subscription| *subscription.type_url == *type_url)?;
        (found.is_current && found.interest == *interest).then(|| Arc::clone(&found.shared))
    }

    /// Puts a subscription in the place of the one it had of that type.
    fn replace(&self, new: ClientSubscription) {
        let mut subscriptions = self.subscriptions.lock();
        match subscriptions.iter_mut().find(|old| old.type_url == new.type_url) {
            Some(old) => *old = new,
            None => subscriptions.push(new),
        }
    }
}

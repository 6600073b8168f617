//! All that is said to ROS 2: the one file that knows `ros2-client`.

use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use futures::StreamExt;
use futures::executor::block_on;
use futures::future::{AbortHandle, Abortable};
use ocelli_robot::messages::RosMessage;
use ocelli_robot::parameters::Parameter;
use ros2_client::dds::rustdds::{DomainParticipantBuilder, Topic};
use ros2_client::qos::{Durability, History, WhenFull};
use ros2_client::{Context, MessageTypeName, Name, Node, NodeName, NodeOptions, ParameterValue, QosProfile};
use serde::de::DeserializeOwned;

/// Results that a subscriber may be behind by.
const RESULTS: usize = 10;

/// A node of ROS 2 with its threads. Dropping it takes the node off the network.
pub struct Middleware {
    node: Node,
    threads: Vec<(AbortHandle, JoinHandle<()>)>,
}

/// Publishes messages of one type.
pub struct Publisher<M: RosMessage>(ros2_client::Publisher<M>);

/// Checks or applies a parameter that somebody wants to set; an error is the answer.
pub type OnParameter = Box<dyn Fn(&str, &Parameter) -> Result<(), String> + Send + Sync>;

impl Middleware {
    /// A node with parameters, which `check` and then `apply` see before they change.
    ///
    /// # Errors
    /// For invalid names, and if there is no network.
    pub fn new(
        namespace: &str,
        name: &str,
        parameters: Vec<(&'static str, Parameter)>,
        check: OnParameter,
        apply: OnParameter,
    ) -> anyhow::Result<Self> {
        let mut participant = DomainParticipantBuilder::new(domain_id()?);
        if on_this_machine_only() {
            participant = participant.with_only_networks([std::net::Ipv4Addr::LOCALHOST]);
        }
        let participant = participant.build().map_err(|e| anyhow!("cannot take part in DDS: {e:?}"))?;
        let context = Context::from_domain_participant(participant)
            .map_err(|e| anyhow!("cannot take part in ROS 2: {e}"))?;
        let mut options = NodeOptions::new().enable_rosout(true);
        for (name, value) in parameters {
            options = options.declare_parameter(name, to_ros(value));
        }
        options = options
            .parameter_validator(Box::new(move |name, value| check(name, &from_ros(name, value)?)))
            .parameter_set_action(Box::new(move |name, value| apply(name, &from_ros(name, value)?)));
        let node_name =
            NodeName::new(namespace, name).map_err(|e| anyhow!("node {namespace} {name}: {e}"))?;
        let node =
            context.new_node(node_name, options).map_err(|e| anyhow!("cannot create the node: {e:?}"))?;
        Ok(Self { node, threads: Vec::new() })
    }

    /// Answers parameter services and follows what others publish and subscribe, on its own thread.
    ///
    /// # Errors
    /// If the services or the thread cannot be created.
    pub fn spin(&mut self) -> anyhow::Result<()> {
        let spinner = self.node.spinner().map_err(|e| anyhow!("cannot offer parameter services: {e}"))?;
        self.spawn("ros", move || async move {
            if let Err(error) = spinner.spin().await {
                tracing::error!("ROS 2 discovery and parameters have ended: {error}");
            }
        })
    }

    /// Publishes to a topic: reliably, and if `latched` also to those that subscribe later.
    ///
    /// # Errors
    /// For an invalid name.
    pub fn publisher<M: RosMessage>(&mut self, topic: &str, latched: bool) -> anyhow::Result<Publisher<M>> {
        let (durability, depth) =
            if latched { (Durability::TransientLocal, 1) } else { (Durability::Volatile, RESULTS) };
        let qos = QosProfile::publisher_default()
            .reliability_reliable(WhenFull::Wait(Duration::from_millis(10)))
            .durability(durability)
            .history(History::KeepLast { depth });
        let created = self.topic::<M>(topic, &qos)?;
        let publisher = self.node.create_publisher(&created, Some(qos));
        publisher.map(Publisher).map_err(|e| anyhow!("cannot publish to {topic}: {e}"))
    }

    /// Calls `each` with the messages of a topic, on a thread of its own: best effort and the newest, as for a sensor.
    ///
    /// # Errors
    /// For an invalid name, or if the thread cannot be created.
    pub fn subscribe<M: RosMessage + DeserializeOwned + Send + 'static>(
        &mut self,
        topic: &str,
        mut each: impl FnMut(M) + Send + 'static,
    ) -> anyhow::Result<()> {
        let qos = QosProfile::subscription_default();
        let created = self.topic::<M>(topic, &qos)?;
        let subscription = self
            .node
            .create_subscription::<M>(&created, Some(qos))
            .map_err(|e| anyhow!("cannot subscribe to {topic}: {e}"))?;
        let name = topic.to_owned();
        self.spawn("images", move || async move {
            let mut messages = std::pin::pin!(subscription.async_stream());
            while let Some(message) = messages.next().await {
                match message {
                    Ok((message, _)) => each(message),
                    Err(error) => tracing::warn!("a message of {name} cannot be read: {error}"),
                }
            }
        })
    }

    /// `true` if anybody receives what is published.
    pub fn is_received<M: RosMessage>(&self, publisher: &Publisher<M>) -> bool {
        publisher.0.get_subscription_count(&self.node) > 0
    }

    fn topic<M: RosMessage>(&self, topic: &str, qos: &QosProfile) -> anyhow::Result<Topic> {
        let name = Name::parse(topic).map_err(|e| anyhow!("topic {topic}: {e}"))?;
        let created = self.node.create_topic(&name, MessageTypeName::new(M::PACKAGE, M::NAME), qos);
        created.map_err(|e| anyhow!("cannot create the topic {topic}: {e}"))
    }

    /// Runs a future on a thread until it ends or the node is dropped.
    fn spawn<F: Future<Output = ()>>(
        &mut self,
        name: &str,
        future: impl FnOnce() -> F + Send + 'static,
    ) -> anyhow::Result<()> {
        let (handle, registration) = AbortHandle::new_pair();
        let thread = std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || {
                // Ended or aborted, both are fine.
                let _ = block_on(Abortable::new(future(), registration));
            })
            .context("cannot start a thread")?;
        self.threads.push((handle, thread));
        Ok(())
    }
}

impl Drop for Middleware {
    fn drop(&mut self) {
        for (handle, _) in &self.threads {
            handle.abort();
        }
        for (_, thread) in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a thread of the node has panicked");
            }
        }
    }
}

impl<M: RosMessage> Publisher<M> {
    /// Publishes a message. One that subscribers have no room for is dropped, and reported.
    pub fn publish(&self, message: M) {
        if let Err(error) = self.0.publish(message) {
            tracing::warn!("a message of {} was not published: {error}", M::NAME);
        }
    }
}

fn domain_id() -> anyhow::Result<u16> {
    let Ok(text) = std::env::var("ROS_DOMAIN_ID") else { return Ok(0) };
    if text.is_empty() {
        return Ok(0);
    }
    text.parse().with_context(|| format!("ROS_DOMAIN_ID is {text:?}: expected a number from 0 to 232"))
}

fn on_this_machine_only() -> bool {
    std::env::var("ROS_LOCALHOST_ONLY").is_ok_and(|value| value == "1")
        || std::env::var("ROS_AUTOMATIC_DISCOVERY_RANGE").is_ok_and(|value| value == "LOCALHOST")
}

fn to_ros(value: Parameter) -> ParameterValue {
    match value {
        Parameter::Bool(value) => ParameterValue::Boolean(value),
        Parameter::Integer(value) => ParameterValue::Integer(value),
        Parameter::Double(value) => ParameterValue::Double(value),
        Parameter::Text(value) => ParameterValue::String(value),
        Parameter::Texts(values) => ParameterValue::StringArray(values),
    }
}

fn from_ros(name: &str, value: &ParameterValue) -> Result<Parameter, String> {
    Ok(match value {
        ParameterValue::Boolean(value) => Parameter::Bool(*value),
        ParameterValue::Integer(value) => Parameter::Integer(*value),
        ParameterValue::Double(value) => Parameter::Double(*value),
        ParameterValue::String(value) => Parameter::Text(value.clone()),
        ParameterValue::StringArray(values) => Parameter::Texts(values.clone()),
        other => {
            return Err(format!("{name} is {other:?}: expected a text, texts, a number or a truth value"));
        }
    })
}

//! Recordings: what is in them, and how they are written.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, Seek, Write};
use std::path::Path;

use anyhow::Context;
use mcap::io::MessageReader;
use mcap::records::MessageHeader;
use mcap::{WriteOptions, Writer};
use ocelli_robot::cdr;
use ocelli_robot::messages::RosMessage;

/// Opens a recording, to read its messages in the order in which they were written.
///
/// # Errors
/// If the file cannot be opened.
pub fn open(file: &Path) -> anyhow::Result<MessageReader<BufReader<File>>> {
    let opened = File::open(file).with_context(|| format!("cannot read {}", file.display()))?;
    Ok(MessageReader::new(BufReader::new(opened)))
}

/// Lists the topics of a recording with their types and the number of their messages.
///
/// # Errors
/// If the file cannot be read.
pub fn list(file: &Path, to: &mut impl Write) -> anyhow::Result<()> {
    let mut topics: BTreeMap<String, (String, u64)> = BTreeMap::new();
    for message in open(file)? {
        let message = message.with_context(|| format!("cannot read {}", file.display()))?;
        let channel = &message.channel;
        let kind = channel.schema.as_ref().map_or("no schema", |schema| &schema.name);
        topics.entry(channel.topic.clone()).or_insert_with(|| (kind.to_owned(), 0)).1 += 1;
    }
    for (topic, (kind, messages)) in topics {
        writeln!(to, "{topic}\t{kind}\t{messages}")?;
    }
    Ok(())
}

/// A recording that is written.
pub struct Recording<W: Write + Seek> {
    writer: Writer<W>,
    /// The topics that are copied, by their number in the other recording.
    copied: BTreeMap<u16, u16>,
}

/// A topic of a recording that is written.
#[derive(Clone, Copy)]
pub struct Topic(u16);

impl<W: Write + Seek> Recording<W> {
    /// # Errors
    /// If the file cannot be written.
    pub fn new(to: W) -> anyhow::Result<Self> {
        let options =
            WriteOptions::new().profile("ros2").library(concat!("ocelli ", env!("CARGO_PKG_VERSION")));
        Ok(Self { writer: options.create(to)?, copied: BTreeMap::new() })
    }

    /// Adds a topic of messages in CDR.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn topic<M: RosMessage>(&mut self, name: &str) -> anyhow::Result<Topic> {
        let schema = self.writer.add_schema(&M::full_name(), "ros2msg", M::schema().as_bytes())?;
        Ok(Topic(self.writer.add_channel(schema, name, "cdr", &BTreeMap::new())?))
    }

    /// Writes a message with the times of the one that it was made from.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn write(
        &mut self,
        topic: Topic,
        from: &mcap::Message<'_>,
        message: &impl RosMessage,
    ) -> anyhow::Result<()> {
        let header = MessageHeader {
            channel_id: topic.0,
            sequence: from.sequence,
            log_time: from.log_time,
            publish_time: from.publish_time,
        };
        self.writer.write_to_known_channel(&header, &cdr::to_bytes(message)?)?;
        Ok(())
    }

    /// Writes a message as it is.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn copy(&mut self, message: &mcap::Message<'_>) -> anyhow::Result<()> {
        let channel = &message.channel;
        let channel_id = match self.copied.get(&channel.id) {
            Some(id) => *id,
            None => {
                let schema = match &channel.schema {
                    Some(schema) => self.writer.add_schema(&schema.name, &schema.encoding, &schema.data)?,
                    // None, in a recording.
                    None => 0,
                };
                let encoding = &channel.message_encoding;
                let id = self.writer.add_channel(schema, &channel.topic, encoding, &channel.metadata)?;
                self.copied.insert(channel.id, id);
                id
            }
        };
        let header = MessageHeader {
            channel_id,
            sequence: message.sequence,
            log_time: message.log_time,
            publish_time: message.publish_time,
        };
        self.writer.write_to_known_channel(&header, &message.data)?;
        Ok(())
    }

    /// Completes the file.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn finish(mut self) -> anyhow::Result<()> {
        self.writer.finish()?;
        Ok(())
    }
}

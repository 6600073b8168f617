use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::channel;
use std::time::Duration;

use rumqttc::MqttOptions;

use super::{Broker, Link};

/// A packet with a length below 128: its type, and what follows.
fn packet(stream: &mut TcpStream) -> Option<(u8, Vec<u8>)> {
    let mut head = [0; 2];
    stream.read_exact(&mut head).ok()?;
    let mut rest = vec![0; usize::from(head[1])];
    stream.read_exact(&mut rest).ok()?;
    Some((head[0] >> 4, rest))
}

/// Confirms `count` messages of a connection, or fewer if the client closes it; returns their texts.
fn serve(stream: &mut TcpStream, topic: &str, count: usize) -> Vec<String> {
    let mut received = Vec::new();
    while received.len() < count {
        let Some((kind, rest)) = packet(stream) else { break };
        match kind {
            1 => stream.write_all(&[0x20, 2, 0, 0]).expect("it is open"),
            3 => {
                let (id, text) = rest[2 + topic.len()..].split_at(2);
                received.push(String::from_utf8(text.to_vec()).expect("it is text"));
                stream.write_all(&[0x40, 2, id[0], id[1]]).expect("it is open");
            }
            14 => break,
            _ => {}
        }
    }
    received
}

#[test]
fn a_broker_that_was_restarted_between_events_gets_each_once() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let port = listener.local_addr().expect("it is bound").port();
    let (say, connected) = channel();
    let (close, closing) = channel::<()>();
    let server = std::thread::spawn(move || {
        let mut received = Vec::new();
        for count in [1, usize::MAX] {
            let (mut stream, _) = listener.accept().expect("it listens");
            let _ = say.send(());
            received.extend(serve(&mut stream, "gate", count));
            // What was confirmed has arrived; the connection ends now, or has ended.
            closing.recv().ok();
        }
        received
    });
    let mut broker = Broker::connect(MqttOptions::new("test", "127.0.0.1", port), "gate".into());
    let patience = Duration::from_secs(1);
    connected.recv_timeout(patience).expect("it connects at once");
    broker.send(b"one", |_| ()).expect("it is confirmed");
    drop(close);
    // A client may connect again now, or with the next event.
    let _ = connected.recv_timeout(patience);
    for event in ["two", "three"] {
        broker.send(event.as_bytes(), |_| ()).expect("it is confirmed");
    }
    drop(broker);
    assert_eq!(server.join().expect("it served both connections"), ["one", "two", "three"]);
}

#[test]
fn a_broker_that_is_off_takes_no_memory() {
    let free = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let port = free.local_addr().expect("it is bound").port();
    drop(free);
    let mut broker = Broker::connect(MqttOptions::new("test", "127.0.0.1", port), "gate".into());
    assert!(broker.greet().is_err(), "that it is off is known before the first event");
    let link = Link::open(MqttOptions::new("test", "127.0.0.1", port));
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(link.signals.try_iter().count(), 1, "the failure, and the end of the attempts");
}

#[test]
fn a_broker_is_told_of_the_end_before_the_program_ends() {
    for _ in 0..20 {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let port = listener.local_addr().expect("it is bound").port();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("it listens");
            assert_eq!(serve(&mut stream, "gate", 1), ["one"]);
            stream
        });
        let mut broker = Broker::connect(MqttOptions::new("test", "127.0.0.1", port), "gate".into());
        broker.send(b"one", |_| ()).expect("it is confirmed");
        let mut stream = server.join().expect("it served the connection");
        drop(broker);
        // It is there already.
        stream.set_nonblocking(true).expect("it can");
        assert_eq!(packet(&mut stream).map(|(kind, _)| kind), Some(14));
    }
}

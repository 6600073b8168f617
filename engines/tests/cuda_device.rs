//! An NVIDIA GPU does what the fake one does. `OCELLI_TEST_GPU` names another than number 0.

#![allow(clippy::print_stderr, reason = "they say what they found and measured on a GPU")]

use ocelli_engines::cuda::{CudaBuffer, CudaDevice, CudaStream, PinnedBuffer, StreamPriority};
use ocelli_engines::{Device, DeviceBuffer, Error, ErrorKind, Result, Tensor};
use std::iter::{empty, once};
use std::sync::Arc;
use std::time::Instant;

fn ordinal() -> usize {
    std::env::var("OCELLI_TEST_GPU").map_or(0, |number| number.parse().expect("OCELLI_TEST_GPU is a number"))
}

fn open() -> Arc<CudaDevice> {
    CudaDevice::open(ordinal()).expect("there is a GPU")
}

fn stream(device: &CudaDevice, priority: StreamPriority) -> CudaStream {
    CudaStream::new(device, priority).expect("it is made")
}

fn failed(error: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Execution, error.to_string())
}

/// Enqueues the filling of a whole buffer with one byte.
fn fill(device: &CudaDevice, on: &CudaStream, to: &CudaBuffer, value: u8) -> Result<()> {
    on.enqueue(empty(), once(to), |raw| {
        // SAFETY: the memory is the buffer's, and `enqueue` has waited for its users.
        unsafe { device.calls()?.fill(to.address(), value, to.capacity(), raw) }.map_err(failed)
    })
}

/// Enqueues the copy of a whole buffer to another of the same size.
fn copy(device: &CudaDevice, on: &CudaStream, from: &CudaBuffer, to: &CudaBuffer) -> Result<()> {
    on.enqueue(once(from), once(to), |raw| {
        // SAFETY: the memory is the buffers', and `enqueue` has waited for their users.
        unsafe { device.calls()?.copy_on_device(to.address(), from.address(), to.capacity(), raw) }
            .map_err(failed)
    })
}

/// The byte that a whole buffer is filled with, if it is one.
fn uniform(buffer: &CudaBuffer, scratch: &mut Vec<u8>) -> Option<u8> {
    scratch.resize(buffer.capacity(), 0);
    buffer.copy_to_host(0, scratch).expect("it is copied");
    scratch.iter().all(|byte| *byte == scratch[0]).then_some(scratch[0])
}

/// Numbers that look random and are the same each time (splitmix64).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((mixed ^ (mixed >> 31)) % bound as u64) as usize
    }
}

#[test]
fn a_gpu_that_is_not_there_is_one_line() {
    let error = CudaDevice::open(1_000_000).expect_err("nobody has so many");
    let text = error.to_string();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert_eq!(text.lines().count(), 1, "{text}");
    let without_driver = text.starts_with("cannot use an NVIDIA GPU: NVIDIA's driver ");
    let with_driver = text.starts_with("cannot use an NVIDIA GPU: no GPU has number 1000000, there ");
    let without_gpu = text.starts_with("cannot use an NVIDIA GPU: there is none on this machine");
    assert!(without_driver || with_driver || without_gpu, "{text}");
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn it_says_what_it_is() {
    let device = open();
    let memory = device.memory().expect("it is asked");
    let (major, minor) = device.compute_capability();
    eprintln!(
        "{}: compute capability {major}.{minor}, CUDA {}, {memory:?}",
        device.name(),
        device.driver_version()
    );
    assert!(memory.free > 0 && memory.free <= memory.total);
    assert!(major >= 5);
    assert!(Arc::ptr_eq(&device, &open()), "opened again it is the same");
    assert_eq!(device.ordinal(), ordinal());
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn what_crosses_comes_back() {
    let device = open();
    let mut failures = Vec::new();
    for (bytes, offset) in
        [(1, 0), (1, 700), (3, 255), (4096, 0), (100_000, 7), (40 << 20, 13), (200 << 20, 0)]
    {
        let there = device.allocate_buffer(bytes + offset).expect("there is memory");
        let sent: Vec<u8> = (0..bytes).map(|index| (index * 7 + index / 251) as u8).collect();
        let mut came = vec![0; bytes];
        there.copy_from_host(offset, &sent).expect("it fits");
        there.copy_to_host(offset, &mut came).expect("it is there");
        if came != sent {
            failures.push(format!("{bytes} bytes from {offset} on: other bytes came back"));
        }
    }
    let host = Tensor::f32(&[3, 64], (0..192).map(|value| value as f32).collect()).expect("fits");
    let (mut there, mut back) = (Tensor::on(device.clone()), Tensor::empty());
    there.copy_from_host(&host).expect("it is copied");
    there.row(1).expect("there are three").copy_to_host_into(&mut back).expect("it is copied");
    if back != host.row(1).expect("there are three") {
        failures.push("a row of a tensor".to_owned());
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn two_streams_keep_the_order_of_ten_thousand_rounds() {
    const BYTES: usize = 4 << 20;
    let device = open();
    let streams = [stream(&device, StreamPriority::Normal), stream(&device, StreamPriority::High)];
    let make = || device.allocate_buffer(BYTES).expect("there is memory");
    let mut buffers: Vec<_> = (0..4).map(|_| make()).collect();
    let mut expected = [0; 4];
    for buffer in &buffers {
        fill(&device, &streams[0], buffer, 0).expect("it is enqueued");
    }
    let (mut numbers, mut scratch, mut failures) = (Numbers(11), Vec::new(), Vec::new());
    let begin = Instant::now();
    for round in 0..10_000 {
        let (on, to) = (&streams[numbers.below(2)], numbers.below(4));
        match numbers.below(20) {
            0..=4 => {
                let value = numbers.below(256) as u8;
                fill(&device, on, &buffers[to], value).expect("it is enqueued");
                expected[to] = value;
            }
            5 => {
                // Another buffer in its place, while the old one's users may still run.
                buffers[to] = make();
                let value = numbers.below(256) as u8;
                fill(&device, on, &buffers[to], value).expect("it is enqueued");
                expected[to] = value;
            }
            _ => {
                let from = (to + 1 + numbers.below(3)) % 4;
                copy(&device, on, &buffers[from], &buffers[to]).expect("it is enqueued");
                expected[to] = expected[from];
            }
        }
        if round % 250 == 249 {
            let at = numbers.below(4);
            if uniform(&buffers[at], &mut scratch) != Some(expected[at]) {
                failures.push(format!("round {round}: buffer {at} is not all {}", expected[at]));
            }
        }
    }
    for (at, buffer) in buffers.iter().enumerate() {
        if uniform(buffer, &mut scratch) != Some(expected[at]) {
            failures.push(format!("at the end: buffer {at} is not all {}", expected[at]));
        }
    }
    eprintln!("10000 rounds in {:?}", begin.elapsed());
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn threads_share_a_device() {
    let device = open();
    let shared = Arc::new(device.allocate_buffer(1 << 20).expect("there is memory"));
    fill(&device, &stream(&device, StreamPriority::Normal), &shared, 77).expect("it is enqueued");
    let threads = [1_u8, 2, 3, 4].map(|value| {
        let (device, shared) = (device.clone(), shared.clone());
        std::thread::spawn(move || {
            let on = stream(&device, StreamPriority::Normal);
            let own = device.allocate_buffer(1 << 20).expect("there is memory");
            let (mut scratch, mut wrong) = (Vec::new(), 0);
            for _ in 0..200 {
                copy(&device, &on, &shared, &own).expect("it is enqueued");
                wrong += usize::from(uniform(&own, &mut scratch) != Some(77));
                fill(&device, &on, &own, value).expect("it is enqueued");
                wrong += usize::from(uniform(&own, &mut scratch) != Some(value));
            }
            wrong
        })
    });
    let wrong: usize = threads.map(|thread| thread.join().expect("it did not panic")).iter().sum();
    assert_eq!(wrong, 0);
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn captured_work_is_the_same_work() {
    let device = open();
    let on = stream(&device, StreamPriority::Normal);
    let [x, y] = [(); 2].map(|()| device.allocate_buffer(1 << 20).expect("there is memory"));
    fill(&device, &on, &x, 5).expect("it is enqueued");
    fill(&device, &on, &y, 6).expect("it is enqueued");
    let mut scratch = Vec::new();
    assert_eq!(uniform(&y, &mut scratch), Some(6));
    let graph = on
        .capture(|raw| {
            let calls = device.calls()?;
            // SAFETY: the buffers live longer than the graph, and it is launched in their order.
            unsafe { calls.copy_on_device(y.address(), x.address(), 1 << 20, raw) }.map_err(failed)
        })
        .expect("it is captured");
    assert_eq!(uniform(&y, &mut scratch), Some(6), "capturing runs nothing");
    for value in 0..50 {
        fill(&device, &on, &x, value).expect("it is enqueued");
        // SAFETY: the buffers are there, and `enqueue` waits for their users.
        on.enqueue(once(&x), once(&y), |_| unsafe { graph.launch(&on) }).expect("it is launched");
        assert_eq!(uniform(&y, &mut scratch), Some(value));
    }
    let spoilt = on.capture(|_| device.allocate_buffer(300 << 20).map(drop).and_then(|()| on.wait()));
    assert!(spoilt.is_err(), "a wait cannot be captured");
    fill(&device, &on, &y, 9).expect("the stream is as before");
    assert_eq!(uniform(&y, &mut scratch), Some(9));
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn a_steady_state_takes_no_memory() {
    let device = open();
    let host = Tensor::zeros_f32(&[1, 3, 1008, 1008]);
    let (mut there, mut back) = (Tensor::on(device.clone()), Tensor::empty());
    let mut free = Vec::new();
    let mut times = Vec::new();
    for _ in 0..40 {
        let begin = Instant::now();
        there.copy_from_host(&host).expect("it is copied");
        there.wait().expect("nothing failed");
        times.push(begin.elapsed());
        drop(device.allocate_buffer(50 << 20).expect("there is memory"));
        there.copy_to_host_into(&mut back).expect("it is copied");
        free.push(device.memory().expect("it is asked").free);
    }
    times.sort();
    let bytes = host.len() * 4;
    eprintln!("{bytes} bytes to the device: median {:?}", times[times.len() / 2]);
    // Other programs on the GPU may move it a little.
    assert!(free[4].abs_diff(free[39]) < 64 << 20, "{free:?}");
    let pinned = PinnedBuffer::new(&device, 1 << 20).expect("it is locked");
    assert!(pinned.as_slice().iter().all(|byte| *byte == 0));
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn more_than_there_is_is_an_error() {
    let device = open();
    let total = device.memory().expect("it is asked").total;
    let error = device.allocate_buffer(2 * total as usize).expect_err("there is not so much");
    let text = error.to_string();
    assert_eq!(error.kind(), ErrorKind::Execution);
    assert!(text.contains("cuMemAlloc: out of memory (CUDA_ERROR_OUT_OF_MEMORY)"), "{text}");
    device.allocate_buffer(1 << 20).expect("there still is some");
}

//! The order that buffers keep, on a GPU that is not there.

use super::fake::{FakeCudaCalls, FakeWork, Live};
use super::*;
use crate::device::{Device, DeviceBuffer, Transferred};
use crate::error::{Error, ErrorKind, Result};
use crate::tensor::Tensor;
use std::iter::{empty, once};
use std::sync::Arc;

fn open() -> (Arc<FakeCudaCalls>, Arc<CudaDevice>) {
    let calls = FakeCudaCalls::new();
    let device = CudaDevice::open_with(calls.clone(), 0).expect("there is one");
    (calls, device)
}

fn stream(device: &CudaDevice) -> CudaStream {
    CudaStream::new(device, StreamPriority::Normal).expect("it is made")
}

fn buffer(device: &CudaDevice, bytes: usize) -> CudaBuffer {
    device.allocate_buffer(bytes).expect("there is memory")
}

/// Enqueues `to = 31 · to + Σ from + step` on whole bytes, in order with everything else.
fn mix(
    calls: &FakeCudaCalls,
    on: &CudaStream,
    from: &[&CudaBuffer],
    to: &CudaBuffer,
    step: u8,
) -> Result<()> {
    let reads: Vec<_> = from.iter().map(|buffer| (buffer.address(), 1)).collect();
    let writes = vec![(to.address(), 1)];
    let (sources, target) = (reads.clone(), to.address());
    let work = FakeWork {
        label: format!("step {step}"),
        reads,
        writes,
        duration: 1,
        run: Arc::new(move |memory| {
            let sum =
                sources.iter().fold(step, |sum, (address, _)| sum.wrapping_add(memory.bytes(*address, 1)[0]));
            let byte = &mut memory.bytes_mut(target, 1)[0];
            *byte = byte.wrapping_mul(31).wrapping_add(sum);
        }),
    };
    on.enqueue(from.iter().copied(), once(to), |stream| {
        calls.enqueue_work(stream, work).map_err(|error| Error::new(ErrorKind::Execution, error.to_string()))
    })
}

fn byte(buffer: &CudaBuffer) -> u8 {
    let mut byte = [0];
    buffer.copy_to_host(0, &mut byte).expect("it is copied");
    byte[0]
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
fn what_crosses_comes_back() {
    let (calls, device) = open();
    let mut failures = Vec::new();
    for (bytes, offset) in [(1, 0), (1, 700), (3, 255), (4096, 0), (100_000, 7), (40 << 20, 13)] {
        let there = buffer(&device, bytes + offset);
        let sent: Vec<u8> = (0..bytes).map(|index| (index * 7 + index / 251) as u8).collect();
        let mut came = vec![0; bytes];
        there.copy_from_host(offset, &sent).expect("it fits");
        there.copy_to_host(offset, &mut came).expect("it is there");
        if came != sent {
            failures.push(format!("{bytes} bytes from {offset} on: other bytes came back"));
        }
        let past = there.capacity() - offset + 1;
        for outcome in
            [there.copy_from_host(offset, &vec![0; past]), there.copy_to_host(offset, &mut vec![0; past])]
        {
            if outcome.as_ref().map_err(Error::kind) != Err(ErrorKind::InvalidArgument) {
                failures.push(format!("{past} bytes from {offset} on: {outcome:?}"));
            }
        }
    }
    failures.extend(calls.races());
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    let crossed = 1 + 1 + 3 + 4096 + 100_000 + (40 << 20);
    assert_eq!(device.transferred(), Transferred { to_device: crossed, to_host: crossed });
}

#[test]
fn tensors_live_on_it() {
    let (calls, device) = open();
    let host = Tensor::f32(&[3, 64], (0..192).map(|value| value as f32).collect()).expect("fits");
    let (mut there, mut back) = (Tensor::on(device.clone()), Tensor::empty());
    there.copy_from_host(&host).expect("it is copied");
    there.row(1).expect("there are three").copy_to_host_into(&mut back).expect("it is copied");
    assert_eq!(back, host.row(1).expect("there are three"));
    assert!(there.device_slice().is_some_and(|slice| CudaBuffer::of(&slice).is_some()));
    there.wait().expect("nothing failed");
    assert_eq!(calls.races(), Vec::<String>::new());
}

#[test]
fn readers_wait_for_the_writer_and_writers_for_the_readers() {
    let (calls, device) = open();
    let (one, other) = (stream(&device), stream(&device));
    let (x, y) = (buffer(&device, 1), buffer(&device, 1));
    x.copy_from_host(0, &[1]).expect("it is copied");
    y.copy_from_host(0, &[2]).expect("it is copied");
    mix(&calls, &one, &[], &x, 1).expect("it is enqueued"); // x = 32
    mix(&calls, &other, &[&x], &y, 0).expect("it is enqueued"); // y = 62 + 32
    mix(&calls, &one, &[], &x, 0).expect("it is enqueued"); // x = 32 · 31, after y has read it
    x.copy_from_host(0, &[9]).expect("it is copied"); // after that
    assert_eq!((byte(&y), byte(&x)), (94, 9));
    assert_eq!(calls.races(), Vec::<String>::new());
}

#[test]
fn the_fake_finds_what_is_not_ordered() {
    let (calls, device) = open();
    let (one, other) = (stream(&device), stream(&device));
    let x = buffer(&device, 1);
    let touch = |on: &CudaStream, label: &str, writes: bool| {
        let range = vec![(x.address(), 1)];
        let (reads, writes) = if writes { (Vec::new(), range) } else { (range, Vec::new()) };
        let run = Arc::new(|_: &mut fake::FakeMemory| {});
        let work = FakeWork { label: label.to_owned(), reads, writes, duration: 1, run };
        calls.enqueue_work(on.raw(), work).expect("it is enqueued");
        calls.races().len()
    };
    // On purpose past `CudaStream::enqueue`: nobody waits for anybody.
    let races = [
        touch(&one, "the write", true),
        touch(&one, "a read after it", false),
        touch(&other, "a read beside it", false),
        touch(&one, "a write beside that read", true),
    ];
    assert_eq!(races, [0, 0, 1, 2], "{:#?}", calls.races());
    one.wait().expect("nothing failed");
    other.wait().expect("nothing failed");
    assert_eq!(touch(&other, "a write after both", true), 2, "{:#?}", calls.races());
    assert!(calls.races()[0].contains("a read beside it on stream"), "{:#?}", calls.races());
}

#[test]
fn what_runs_late_still_runs_in_order() {
    let (calls, device) = open();
    let streams: Vec<_> = (0..4).map(|_| stream(&device)).collect();
    let mut buffers: Vec<_> = (0..6).map(|_| buffer(&device, 1)).collect();
    let mut expected = [0_u8; 6];
    for (buffer, value) in buffers.iter().zip(1..) {
        buffer.copy_from_host(0, &[value]).expect("it is copied");
        expected[usize::from(value) - 1] = value;
    }
    let mut numbers = Numbers(7);
    let mut failures = Vec::new();
    for round in 0..3000 {
        let (on, to) = (&streams[numbers.below(4)], numbers.below(6));
        match numbers.below(12) {
            0 => {
                if byte(&buffers[to]) != expected[to] {
                    failures.push(format!("round {round}: buffer {to} holds something else"));
                }
            }
            1 => {
                // Another buffer in its place: the old one goes back while work may use it.
                buffers[to] = buffer(&device, 1);
                buffers[to].copy_from_host(0, &[round as u8]).expect("it is copied");
                expected[to] = round as u8;
            }
            _ => {
                let from = [numbers.below(6), numbers.below(6)];
                let step = numbers.below(256) as u8;
                let sources = from.map(|index| &buffers[index]);
                mix(&calls, on, &sources, &buffers[to], step).expect("it is enqueued");
                let sum = from.iter().fold(step, |sum, index| sum.wrapping_add(expected[*index]));
                expected[to] = expected[to].wrapping_mul(31).wrapping_add(sum);
            }
        }
    }
    failures.extend(calls.races());
    for (index, buffer) in buffers.iter().enumerate() {
        if byte(buffer) != expected[index] {
            failures.push(format!("at the end: buffer {index} holds something else"));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    let live = calls.live();
    assert!(live.events < 64 && live.blocks <= 64, "they go round: {live:?}");
}

#[test]
fn a_steady_state_makes_nothing() {
    let (calls, device) = open();
    let (one, other) = (stream(&device), stream(&device));
    let mut x = Tensor::on(device.clone());
    let y = buffer(&device, 4096);
    let host = Tensor::zeros_f32(&[1024]);
    let mut back = Tensor::empty();
    let mut made = Vec::new();
    for _ in 0..50 {
        x.copy_from_host(&host).expect("it is copied");
        let slice = x.device_slice().expect("it lies there");
        let source = CudaBuffer::of(&slice).expect("it is the GPU's");
        mix(&calls, &one, &[source], &y, 1).expect("it is enqueued");
        mix(&calls, &other, &[&y], source, 1).expect("it is enqueued");
        x.copy_to_host_into(&mut back).expect("it is copied");
        // A tensor for one frame only.
        drop(buffer(&device, 10_000));
        made.push(
            ["cuMemAlloc", "cuMemHostAlloc", "cuEventCreate", "cuStreamCreate", "cuMemFree"]
                .map(|call| calls.calls(call)),
        );
    }
    assert_eq!(made[9], made[49]);
    assert_eq!(calls.races(), Vec::<String>::new());
}

#[test]
fn memory_goes_round_and_waits_for_its_users() {
    let (calls, device) = open();
    let (one, y) = (stream(&device), buffer(&device, 1));
    y.copy_from_host(0, &[0]).expect("it is copied");
    let x = buffer(&device, 1000);
    x.copy_from_host(0, &[5]).expect("it is copied");
    let address = x.address();
    mix(&calls, &one, &[&x], &y, 0).expect("it is enqueued");
    drop(x);
    let again = buffer(&device, 1024);
    assert_eq!(again.address(), address);
    again.copy_from_host(0, &[7]).expect("it is copied"); // the read of 5 comes first
    assert_eq!(byte(&y), 5);
    drop(again);
    device.give_idle_memory_back().expect("it is given back");
    assert_eq!(calls.live().blocks, 1);
    assert_eq!(calls.races(), Vec::<String>::new());
}

#[test]
fn a_full_device_gives_up_what_is_idle_first() {
    let calls = FakeCudaCalls::with_devices(1, 1 << 20);
    let device = CudaDevice::open_with(calls.clone(), 0).expect("there is one");
    // A quarter may stay idle.
    drop(buffer(&device, 200 << 10));
    assert_eq!(calls.live().blocks, 1);
    drop(buffer(&device, 400 << 10));
    assert_eq!(calls.live().blocks, 0);
    drop(buffer(&device, 200 << 10));
    let large = buffer(&device, 1 << 20);
    assert_eq!(calls.live().blocks, 1);
    let error = device.allocate(4096).expect_err("it is full");
    assert_eq!(error.kind(), ErrorKind::Execution);
    assert_eq!(
        error.to_string(),
        "cannot allocate 4096 bytes on the fake GPU (CUDA device 0), where 0 are free: cuMemAlloc: out of memory \
         (error 2 of the fake)"
    );
    drop(large);
    buffer(&device, 4096);
    assert_eq!(calls.races(), Vec::<String>::new());
}

#[test]
fn everything_is_given_back_in_whatever_order_it_is_dropped() {
    let mut wrong = Vec::new();
    for order in [[0, 1, 2, 3], [3, 2, 1, 0], [1, 0, 3, 2], [2, 3, 0, 1], [3, 0, 2, 1]] {
        let (calls, device) = open();
        let (one, x, y) = (stream(&device), buffer(&device, 1), buffer(&device, 1));
        x.copy_from_host(0, &[1]).expect("it is copied");
        y.copy_from_host(0, &[1]).expect("it is copied");
        mix(&calls, &one, &[&x], &y, 1).expect("it is enqueued");
        drop(PinnedBuffer::new(&device, 100).expect("it is locked"));
        let mut download = Download::default();
        one.download(&y, 0, 1, &mut download).expect("it is enqueued");
        let (mut device, mut one, mut buffers, mut download) =
            (Some(device), Some(one), Some((x, y)), Some(download));
        for what in order {
            match what {
                0 => drop(device.take()),
                1 => drop(one.take()),
                2 => drop(buffers.take()),
                _ => drop(download.take()),
            }
        }
        if calls.live() != Live::default() || !calls.races().is_empty() {
            wrong.push(format!("{order:?}: {:?}, {:?}", calls.live(), calls.races()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_failure_is_told_and_does_no_harm() {
    let mut wrong = Vec::new();
    for (call, told) in [
        ("cuStreamWaitEvent", "CUDA device 0: cuStreamWaitEvent: it was told to fail"),
        ("cuEventRecord", "CUDA device 0: cuEventRecord: it was told to fail"),
        ("work", "work: it was told to fail"),
    ] {
        let (calls, device) = open();
        let (one, x, y) = (stream(&device), buffer(&device, 1), buffer(&device, 1));
        x.copy_from_host(0, &[1]).expect("it is copied");
        y.copy_from_host(0, &[2]).expect("it is copied");
        calls.fail(call, 0, 1, 999);
        let outcome = mix(&calls, &one, &[&x], &y, 0);
        if !outcome
            .as_ref()
            .is_err_and(|error| error.kind() == ErrorKind::Execution && error.to_string().starts_with(told))
        {
            wrong.push(format!("{call}: {outcome:?}"));
        }
        y.copy_from_host(0, &[3]).expect("it is copied");
        mix(&calls, &one, &[&x], &y, 0).expect("it goes on");
        if byte(&y) != 94 {
            wrong.push(format!("{call}: afterwards the result is {}", byte(&y)));
        }
        wrong.extend(calls.races());
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_buffer_has_one_writer_at_a_time_and_one_device() {
    let calls = FakeCudaCalls::with_devices(2, 1 << 20);
    let [device, second] =
        [0, 1].map(|ordinal| CudaDevice::open_with(calls.clone(), ordinal).expect("there are two"));
    let (one, x) = (stream(&device), buffer(&device, 1));
    let nested = one.enqueue(empty(), once(&x), |_| one.enqueue(empty(), once(&x), |_| Ok(())));
    let error = nested.expect_err("it is written already");
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.to_string().ends_with("two writes of it are being enqueued at once"), "{error}");
    one.enqueue(once(&x), once(&x), |_| Ok(())).expect("read and written at once is one write");

    let elsewhere = stream(&second);
    let error = elsewhere.enqueue(once(&x), empty(), |_| Ok(())).expect_err("it lies on the other");
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.to_string().ends_with("it cannot be used by a stream of CUDA device 1"), "{error}");
}

#[test]
fn captured_work_runs_when_it_is_launched_and_forbidden_calls_spoil_it() {
    let (calls, device) = open();
    let (one, x) = (stream(&device), buffer(&device, 1));
    x.copy_from_host(0, &[1]).expect("it is copied");
    let address = x.address();
    let work = FakeWork {
        label: "captured".to_owned(),
        reads: Vec::new(),
        writes: vec![(address, 1)],
        duration: 1,
        run: Arc::new(move |memory| memory.bytes_mut(address, 1)[0] += 10),
    };
    let enqueue = |stream| {
        calls
            .enqueue_work(stream, work.clone())
            .map_err(|error| Error::new(ErrorKind::Execution, error.to_string()))
    };
    let graph = one.capture(enqueue).expect("it can be captured");
    assert_eq!(byte(&x), 1);
    for _ in 0..3 {
        // SAFETY: `x` is there, and its users are waited for.
        one.enqueue(empty(), once(&x), |_| unsafe { graph.launch(&one) }).expect("it is launched");
    }
    assert_eq!(byte(&x), 31);

    let spoilt = one.capture(|stream| {
        enqueue(stream)?;
        let _ = device.allocate_buffer(1 << 16);
        Ok(())
    });
    let error = spoilt.expect_err("memory cannot be allocated in between");
    assert!(error.to_string().starts_with("CUDA device 0: cuStreamEndCapture: operation failed"), "{error}");
    one.enqueue(empty(), once(&x), enqueue).expect("the stream is as before");
    assert_eq!(byte(&x), 41);
    assert_eq!(calls.races(), Vec::<String>::new());
}

#[test]
fn what_is_missing_is_named() {
    let none = FakeCudaCalls::with_devices(0, 0);
    let two = FakeCudaCalls::with_devices(2, 1 << 20);
    let refusing = FakeCudaCalls::new();
    refusing.fail("cuDevicePrimaryCtxRetain", 0, 1, 46);
    let no_library = driver::Driver::load(&["libocelli-has-no-such-library.so.1"]).map(|_| ());
    let other_library = driver::Driver::load(&["libm.so.6"]).map(|_| ());
    let cases: [(Result<()>, &[&str]); 5] = [
        (CudaDevice::open_with(none, 0).map(drop), &["no GPU has number 0, there is none on this machine"]),
        (
            CudaDevice::open_with(two, 2).map(drop),
            &["no GPU has number 2, there are 2, numbers 0 to 1", "CUDA_VISIBLE_DEVICES"],
        ),
        (CudaDevice::open_with(refusing, 0).map(drop), &["cuDevicePrimaryCtxRetain: it was told to fail"]),
        (
            no_library,
            &["driver is not installed: libocelli-has-no-such-library.so.1: ", "install the driver"],
        ),
        (other_library, &["driver lacks cuInit"]),
    ];
    let mut wrong = Vec::new();
    for (outcome, told) in cases {
        let fits = outcome.as_ref().is_err_and(|error| {
            let text = error.to_string();
            error.kind() == ErrorKind::Unavailable
                && text.starts_with("cannot use an NVIDIA GPU: ")
                && text.lines().count() == 1
                && told.iter().all(|part| text.contains(part))
        });
        if !fits {
            wrong.push(format!("{told:?}: {outcome:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn copies_on_the_device_keep_the_order_and_cross_nothing() {
    let (calls, device) = open();
    let on: Arc<dyn Device> = device.clone();
    let mut source = Tensor::on(on.clone());
    source.copy_from_host(&Tensor::new(&[4], vec![1_u8, 2, 3, 4]).expect("fits")).expect("it is copied");
    let mut target = Tensor::on(on);
    target.copy_from_host(&Tensor::new(&[4], vec![9_u8; 4]).expect("fits")).expect("it is copied");
    let before = device.transferred();
    let (stream, other) = (stream(&device), buffer(&device, 1));
    let slices = |tensor: &Tensor| tensor.device_slice().expect("it has elements").buffer.clone();
    let (from, to) = (slices(&source), slices(&target));
    let [from, to] =
        [&from, &to].map(|buffer| buffer.as_any().downcast_ref::<CudaBuffer>().expect("it is the GPU's"));
    // The first byte is written before, and read after, by another stream.
    mix(&calls, &stream, &[], from, 7).expect("it is enqueued");
    target.copy_elements(1, &source, 0, 2).expect("it is copied");
    mix(&calls, &stream, &[to], &other, 1).expect("it is enqueued");
    mix(&calls, &stream, &[], to, 3).expect("it is enqueued");
    target.wait_idle().expect("nothing fails");
    assert_eq!(device.transferred(), before);
    let mut host = Tensor::empty();
    target.copy_to_host_into(&mut host).expect("it is copied");
    let first = 9_u8.wrapping_mul(31).wrapping_add(3);
    assert_eq!(host.as_slice::<u8>().expect("u8"), [first, 31 + 7, 2, 9]);
    assert_eq!(calls.races(), Vec::<String>::new());

    let error = to.copy_from_device(0, from, 1, 1 << 20).expect_err("it is not that large");
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    let foreign = crate::fake::FakeDevice::new().allocate(4).expect("there is memory");
    let error = to.copy_from_device(0, &*foreign, 0, 1).expect_err("it is another device's");
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
}

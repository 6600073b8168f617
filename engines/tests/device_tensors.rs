//! Tensors on an NVIDIA GPU: where they stay, what is copied, and what is refused.

use crate::copies::{copied, on_host};
use ocelli_engines::cuda::CudaDevice;
use ocelli_engines::spec::check_residence;
use ocelli_engines::{Device, ElementType, ErrorKind, Tensor, Transferred};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The device, for one test at a time: they count what it copies and allocates.
fn open() -> (Arc<CudaDevice>, MutexGuard<'static, ()>) {
    static LOCK: Mutex<()> = Mutex::new(());
    let guard = LOCK.lock().unwrap_or_else(PoisonError::into_inner);
    (CudaDevice::open(0).expect("there is a GPU"), guard)
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn memory_is_reused_unless_it_is_shared() {
    let (device, _guard) = open();
    let mut tensor = Tensor::on(device.clone());
    let (before, mut allocations) = (device.allocations(), Vec::new());
    let mut reset = |tensor: &mut Tensor, shape: &[usize]| {
        tensor.reset_to(ElementType::F32, shape).expect("there is memory");
        allocations.push(device.allocations() - before);
    };
    reset(&mut tensor, &[4, 64]);
    reset(&mut tensor, &[2, 2]);
    reset(&mut tensor, &[0]);
    reset(&mut tensor, &[256]);
    let row = tensor.row(3).expect("there are 256");
    reset(&mut tensor, &[256]);
    drop(row);
    reset(&mut tensor, &[256]);
    reset(&mut tensor, &[257]);
    assert_eq!(allocations, [1, 1, 1, 1, 2, 2, 3]);
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn a_row_shares_the_memory() {
    let (device, _guard) = open();
    let host = Tensor::f32(&[3, 2], vec![0.0, 1.0, 2.0, 3.0, 4.0, 5.0]).expect("fits");
    let tensor = copied(&device, &host);
    let row = tensor.row(1).expect("there are three");
    let (whole, part) = (tensor.device_slice().expect("on the GPU"), row.device_slice().expect("on the GPU"));
    assert_eq!((part.address() - whole.address(), part.bytes), (8, 8));
    assert_eq!(on_host(&row), host.row(1).expect("there are three"));
    assert_eq!(tensor.row(3).expect_err("there are three").kind(), ErrorKind::InvalidArgument);
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn every_element_type_is_copied_unchanged() {
    let (device, _guard) = open();
    let mut bools = Tensor::zeros::<bool>(&[3]);
    bools.as_mut_slice::<bool>().expect("bool")[1] = true;
    let tensors = [
        Tensor::f32(&[2], vec![1.5, f32::INFINITY]).expect("fits"),
        Tensor::new(&[2], vec![half::f16::from_f32(0.5), half::f16::MAX]).expect("fits"),
        Tensor::i64(&[2], vec![i64::MIN, 7]).expect("fits"),
        Tensor::new(&[2], vec![i32::MIN, 7]).expect("fits"),
        Tensor::new(&[2], vec![0_u8, 255]).expect("fits"),
        bools,
        Tensor::zeros::<f32>(&[0, 4]),
    ];
    let failures: Vec<_> =
        tensors.iter().filter(|&tensor| on_host(&copied(&device, tensor)) != *tensor).collect();
    assert!(failures.is_empty(), "{failures:?}");
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn elements_are_copied_between_host_and_device() {
    let (device, _guard) = open();
    let source = Tensor::f32(&[2, 3], vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0]).expect("fits");
    let target = Tensor::f32(&[4], vec![9.0; 4]).expect("fits");
    let (source_there, target_there) = (copied(&device, &source), || copied(&device, &target));
    let row = source_there.row(0).expect("there are two");
    let mut failures = Vec::new();
    for (name, mut target, source, from, bytes, expected) in [
        ("host to device", target_there(), &source, 2, (8, 0), [3.0, 4.0]),
        ("device to host", target.clone(), &source_there, 2, (0, 8), [3.0, 4.0]),
        ("device to device", target_there(), &source_there, 2, (0, 0), [3.0, 4.0]),
        ("a row", target_there(), &row, 1, (0, 0), [2.0, 3.0]),
    ] {
        let before = device.transferred();
        target.copy_elements(1, source, from, 2).expect("it is copied");
        let after = device.transferred();
        let transferred = Transferred {
            to_device: after.to_device - before.to_device,
            to_host: after.to_host - before.to_host,
        };
        if transferred != (Transferred { to_device: bytes.0, to_host: bytes.1 }) {
            failures.push(format!("{name}: {transferred:?}"));
        }
        let host = on_host(&target);
        if host.as_f32().expect("f32") != [9.0, expected[0], expected[1], 9.0] {
            failures.push(format!("{name}: {:?}", host.as_f32()));
        }
    }
    source_there.clone().copy_elements(0, &source_there, 3, 3).expect("it is copied within one buffer");
    assert_eq!(on_host(&source_there).as_f32().expect("f32"), [4.0, 5.0, 6.0, 4.0, 5.0, 6.0]);
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn tensors_on_the_wrong_device_are_refused() {
    let (device, _guard) = open();
    let (name, own) = (device.name(), Device::from(device.clone()));
    let host = Tensor::zeros::<f32>(&[1, 2]);
    let there = copied(&device, &host);
    let check = |device: Option<&Device>, x: &Tensor, mut y: Tensor| {
        check_residence(device, &[("x", x)], &[("y", &mut y)]).map_err(|error| error.to_string())
    };
    let on_host = |side: &str| Err(format!("{side}: expected host memory, it is on {name}"));
    assert_eq!(check(None, &there, Tensor::empty()), on_host("input `x`"));
    assert_eq!(check(None, &host, Tensor::on(own.clone())), on_host("output `y`"));
    assert_eq!(check(Some(&own), &there, Tensor::on(own.clone())), Ok(()));
    assert_eq!(check(Some(&own), &host, Tensor::empty()), Ok(()));
    let read = there.as_f32().map(drop).map_err(|error| error.to_string());
    assert_eq!(read, on_host("tensor of shape [1, 2]"));
}

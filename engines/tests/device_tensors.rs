//! Tensors that lie on a device: where they stay, what crosses, and who may touch them.

use ocelli_engines::fake::{FakeDevice, FakeEngine};
use ocelli_engines::{
    Device, Dim, ElementType, Engine, EngineSpec, ErrorKind, Tensor, TensorSpec, Transferred,
};
use std::sync::Arc;

fn on(device: &Arc<FakeDevice>) -> Tensor {
    Tensor::on(device.clone())
}

fn doubling(device: Option<&Arc<FakeDevice>>) -> FakeEngine {
    let shape = || [Dim::named("n"), Dim::Fixed(2)];
    let spec = EngineSpec {
        inputs: vec![TensorSpec::new("x", ElementType::F32, shape())],
        outputs: vec![TensorSpec::new("y", ElementType::F32, shape())],
    };
    let engine = FakeEngine::new(spec, |inputs, outputs| {
        let doubled: Vec<f32> = inputs[0].1.as_f32()?.iter().map(|x| 2.0 * x).collect();
        *outputs[0].1 = Tensor::f32(inputs[0].1.shape(), doubled)?;
        Ok(())
    });
    match device {
        Some(device) => engine.with_device(device.clone()),
        None => engine,
    }
}

#[test]
fn what_stays_on_the_device_does_not_cross() {
    let device = FakeDevice::new();
    let (mut first, mut second) = (doubling(Some(&device)), doubling(Some(&device)));
    let mut x = on(&device);
    x.copy_from_host(&Tensor::f32(&[1, 2], vec![1.0, -3.0]).expect("fits")).expect("it is copied");
    let (mut between, mut y) = (on(&device), Tensor::empty());
    first.run(&[("x", &x)], &mut [("y", &mut between)]).expect("it runs");
    second.run(&[("x", &between)], &mut [("y", &mut y)]).expect("it runs");
    assert_eq!(y.as_f32().expect("it is the host's"), [4.0, -12.0]);
    assert_eq!(between.shape(), [1, 2]);
    assert!(between.device().is_some_and(|it| it.kind() == device.kind()));
    // `x` there, `y` back.
    assert_eq!(device.transferred(), Transferred { to_device: 8, to_host: 8 });

    let mut host = Tensor::empty();
    between.copy_to_host_into(&mut host).expect("it is copied");
    assert_eq!(host.as_f32().expect("it is the host's"), [2.0, -6.0]);
    assert_eq!(device.transferred(), Transferred { to_device: 8, to_host: 16 });
}

#[test]
fn memory_goes_round_until_it_is_shared() {
    let device = FakeDevice::new();
    let mut tensor = on(&device);
    let mut allocations = Vec::new();
    let mut reset = |tensor: &mut Tensor, shape: &[usize]| {
        tensor.reset_to(ElementType::F32, shape).expect("there is memory");
        allocations.push(device.allocations());
    };
    reset(&mut tensor, &[4, 8]);
    reset(&mut tensor, &[2, 2]);
    reset(&mut tensor, &[0]);
    reset(&mut tensor, &[32]);
    let row = tensor.row(3).expect("there are 32");
    reset(&mut tensor, &[32]);
    drop(row);
    reset(&mut tensor, &[32]);
    reset(&mut tensor, &[33]);
    assert_eq!(allocations, [1, 1, 1, 1, 2, 2, 3]);
}

#[test]
fn a_row_is_the_same_memory_on_a_device_and_a_copy_on_the_host() {
    let device = FakeDevice::new();
    let host = Tensor::f32(&[3, 2], vec![0.0, 1.0, 2.0, 3.0, 4.0, 5.0]).expect("fits");
    let mut tensor = on(&device);
    tensor.copy_from_host(&host).expect("it is copied");
    let row = tensor.row(1).expect("there are three");
    assert_eq!(row.shape(), [1, 2]);
    assert_eq!(device.allocations(), 1);
    let (whole, part) =
        (tensor.device_slice().expect("it lies there"), row.device_slice().expect("so does it"));
    assert_eq!((part.address() - whole.address(), part.bytes), (8, 8));
    let mut copied = Tensor::empty();
    row.copy_to_host_into(&mut copied).expect("it is copied");
    assert_eq!(copied, host.row(1).expect("there are three"));
    assert_eq!(copied.as_f32().expect("f32"), [2.0, 3.0]);
    for tensor in [&tensor, &host, &Tensor::zeros_f32(&[])] {
        let error = tensor.row(3).expect_err("there are three at most");
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    }
}

#[test]
fn every_type_crosses_there_and_back() {
    let device = FakeDevice::new();
    let mut bools = Tensor::zeros::<bool>(&[3]);
    bools.as_mut_slice::<bool>().expect("bool")[1] = true;
    let tensors = [
        Tensor::f32(&[2], vec![1.5, f32::INFINITY]).expect("fits"),
        Tensor::new(&[2], vec![half::f16::from_f32(0.5), half::f16::MAX]).expect("fits"),
        Tensor::i64(&[2], vec![i64::MIN, 7]).expect("fits"),
        Tensor::new(&[2], vec![i32::MIN, 7]).expect("fits"),
        Tensor::new(&[2], vec![0_u8, 255]).expect("fits"),
        bools,
        Tensor::zeros_f32(&[0, 4]),
    ];
    let mut failures = Vec::new();
    for tensor in tensors {
        let (mut there, mut back) = (on(&device), Tensor::empty());
        there.copy_from_host(&tensor).expect("it is copied");
        there.copy_to_host_into(&mut back).expect("it is copied");
        if back != tensor || there.shape() != tensor.shape() {
            failures.push(format!("{tensor:?}: came back as {back:?}"));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn elements_are_copied_wherever_they_lie() {
    let (device, other) = (FakeDevice::new(), FakeDevice::new());
    let source = Tensor::f32(&[2, 3], vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0]).expect("fits");
    let mut there = on(&device);
    there.copy_from_host(&source).expect("it is copied");
    let target = || Tensor::f32(&[4], vec![9.0; 4]).expect("fits");
    let target_there = || {
        let mut tensor = on(&device);
        tensor.copy_from_host(&target()).expect("it is copied");
        tensor
    };
    let mut failures = Vec::new();
    for (name, mut target, source, crossed) in [
        ("host to host", target(), &source, (0, 0)),
        ("host to device", target_there(), &source, (8, 0)),
        ("device to host", target(), &there, (0, 8)),
        ("device to device", target_there(), &there, (0, 0)),
        ("a row", target_there(), &there.row(0).expect("there are two"), (0, 0)),
    ] {
        let from = if name == "a row" { 1 } else { 2 };
        let before = device.transferred();
        target.copy_elements(1, source, from, 2).expect("it is copied");
        let after = device.transferred();
        if (after.to_device - before.to_device, after.to_host - before.to_host) != crossed {
            failures.push(format!("{name}: {before:?} became {after:?}"));
        }
        let mut host = Tensor::empty();
        target.copy_to_host_into(&mut host).expect("it is copied");
        let (a, b) = if name == "a row" { (2.0, 3.0) } else { (3.0, 4.0) };
        if host.as_f32().expect("f32") != [9.0, a, b, 9.0] {
            failures.push(format!("{name}: {host:?}"));
        }
    }
    let mut flags = Tensor::new(&[3], vec![true; 3]).expect("fits");
    flags.copy_elements(1, &Tensor::zeros::<bool>(&[1]), 0, 1).expect("it is copied");
    assert_eq!(flags.as_slice::<bool>().expect("bool"), [true, false, true]);

    // Into itself, and what cannot be.
    there.clone().copy_elements(0, &there, 3, 3).expect("it is copied");
    let mut host = Tensor::empty();
    there.copy_to_host_into(&mut host).expect("it is copied");
    assert_eq!(host.as_f32().expect("f32"), [4.0, 5.0, 6.0, 4.0, 5.0, 6.0]);
    let mut elsewhere = on(&other);
    elsewhere.copy_from_host(&source).expect("it is copied");
    elsewhere.copy_elements(0, &there, 0, 6).expect("fake devices are one kind of memory");
    for (to, count) in [(3, 2), (5, 0), (usize::MAX, 2)] {
        let error = target().copy_elements(to, &source, 0, count).expect_err("it has four");
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    }
    let error = target().copy_elements(0, &Tensor::zeros::<i64>(&[4]), 0, 1).expect_err("they differ");
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn the_wrong_place_is_named() {
    let device = FakeDevice::new();
    let mut there = on(&device);
    let here = Tensor::zeros_f32(&[1, 2]);
    there.copy_from_host(&here).expect("it is copied");
    let run = |engine: &mut FakeEngine, x: &Tensor, mut y: Tensor| {
        engine.run(&[("x", x)], &mut [("y", &mut y)]).map_err(|error| error.to_string())
    };
    let mut on_host = doubling(None);
    let cases = [
        (
            run(&mut on_host, &there, Tensor::empty()),
            Err("input `x` lies on the fake device: this engine works in the host's memory"),
        ),
        (
            run(&mut on_host, &here, on(&device)),
            Err("output `y` lies on the fake device: this engine works in the host's memory"),
        ),
        (run(&mut doubling(Some(&device)), &here, Tensor::empty()), Ok(())),
        (
            there.as_f32().map(|_| ()).map_err(|error| error.to_string()),
            Err("tensor of shape [1, 2]: it lies on the fake device, not in the host's memory"),
        ),
    ];
    let wrong: Vec<_> = cases
        .iter()
        .filter(|(came, expected)| came.as_ref().map_err(String::as_str) != expected.as_ref().map_err(|e| *e))
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

//! The chain of blocks.

use super::*;

/// The chain, with and without branches, against the graphs that the exporter writes.
#[test]
fn a_chain_is_the_backbone() {
    let (factory, mut wrong, mut cases) = (embedded(), Vec::new(), 0);
    for name in ["padded", "patch16", "plain", "released", "small_grid", "tiled"] {
        let checkpoint = golden(name);
        let global = &checkpoint.config().vision.global_blocks;
        let free: Vec<usize> =
            (0..checkpoint.config().vision.stack.layers).filter(|block| !global.contains(block)).collect();
        let branch = |block: usize, branch| MaskedBranch { block, branch };
        let (first, last) = (free[0], free[free.len() - 1]);
        let removals = [
            vec![],
            vec![branch(first, Branch::Attention)],
            vec![branch(last, Branch::Mlp)],
            vec![branch(first, Branch::Mlp), branch(last, Branch::Attention)],
            Unit::Block(first).branches(),
            [Unit::Block(last).branches(), vec![branch(first, Branch::Attention)]].concat(),
        ];
        for target in [Target::OnnxRuntime, Target::TensorRt] {
            let options = ExportOptions { target, detection_only: true, ..ExportOptions::default() };
            let folder = tempfile::tempdir().expect("a temporary folder");
            let files =
                export_chain(&checkpoint, &options, folder.path(), |_, _| Ok(())).expect("it exports");
            let mut chain = Chain::load(&files, &factory, 1, 0).expect("it loads");
            let mut neck = factory.load(&files.neck).expect("it loads");
            let side = checkpoint.config().vision.image_size;
            let mut random = Random::new(3, 0);
            let pixels = (0..3 * side * side).map(|_| random.uniform(-1.0, 1.0) as f32).collect();
            let pixels = Tensor::f32(&[1, 3, side, side], pixels).expect("it fits");
            let mut whole = Vec::new();
            for removed in &removals {
                let pruning = Pruning::of_branches(removed.iter().copied());
                let target =
                    folder.path().join(format!("{pruning:?}").len().to_string() + &cases.to_string());
                let options = ExportOptions { pruning, ..options.clone() };
                export(&checkpoint, &options, &target, |_| Ok(())).expect("it exports");
                let mut backbone = factory.load(&target.join(file::BACKBONE)).expect("it loads");
                let expected = features_of(&mut *backbone, tensor::PIXEL_VALUES, &pixels);

                let positions = chain.positions(removed.iter().copied());
                let tokens = Arc::new(chain.embed(&pixels).expect("it runs"));
                let end = chain.branches.len();
                let tokens = chain.walk(tokens, 0..end, &positions).expect("it runs");
                let found = features_of(&mut *neck, tensor::TOKENS, &tokens);

                let largest = expected.iter().fold(0f32, |most, value| most.max(value.abs()));
                let pairs = || expected.iter().zip(&found);
                let error = pairs().map(|(a, b)| (a - b).abs()).fold(0.0, f32::max) / largest;
                if found.len() != expected.len() || error.is_nan() || error > 1e-6 {
                    wrong.push(format!("{name}, {target:?}, without {removed:?}: {error}"));
                }
                if removed.is_empty() {
                    whole = found;
                } else if whole == found {
                    wrong.push(format!("{name}, {target:?}, without {removed:?}: nothing changed"));
                }
                cases += 1;
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {cases}:\n{}", wrong.len(), wrong.join("\n"));
}

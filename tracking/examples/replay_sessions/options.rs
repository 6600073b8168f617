//! The names that a recording gives to options.

use crate::replay::Result;
use ocelli_tracking::masklets::{LifeCycle, MaskletOptions};
use serde_json::{Map, Value};

/// The mode of SAM 3.1 as recorded: a replay ends where the reference failed.
pub const MULTIPLEX: &str = "multiplex";
/// The mode of SAM 3.1 that goes on.
pub const MULTIPLEX_GOES_ON: &str = "multiplex_goes_on";

/// The options of a mode, `on`, `off`, [`MULTIPLEX`] or [`MULTIPLEX_GOES_ON`], with those that a sequence
/// sets itself.
pub fn of_mode(mode: &str, patch_grid: usize, changed: &Map<String, Value>) -> Result<MaskletOptions> {
    let mut options = match mode {
        "on" => MaskletOptions::default(),
        "off" => MaskletOptions::default().without_temporal_disambiguation(),
        MULTIPLEX => {
            let mut options = MaskletOptions::multiplex();
            options.life_cycle = LifeCycle::MultiplexAsReleased;
            options
        }
        MULTIPLEX_GOES_ON => MaskletOptions::multiplex(),
        other => return Err(format!("the mode {other} is not known").into()),
    };
    options.patch_grid = patch_grid;
    for (name, value) in changed {
        set(&mut options, name, value)?;
    }
    Ok(options)
}

fn set(options: &mut MaskletOptions, name: &str, value: &Value) -> Result<()> {
    let wrong = || format!("the option {name} is {value}: expected another kind of value");
    let share = || value.as_f64().map(|value| value as f32).ok_or_else(wrong);
    let count = || value.as_u64().map(|value| value as usize).ok_or_else(wrong);
    let counter = || value.as_i64().map(|value| value as i32).ok_or_else(wrong);
    let switch = || value.as_bool().ok_or_else(wrong);
    match name {
        "score_threshold_detection" => options.detection_threshold = share()?,
        "det_nms_thresh" => options.detection_nms_iou = share()?,
        "assoc_iou_thresh" => options.match_iou = share()?,
        "trk_assoc_iou_thresh" => options.unmatched_iou = share()?,
        "new_det_thresh" => options.new_object_threshold = share()?,
        "max_num_objects" => options.max_objects = count()?,
        "hotstart_delay" => options.hotstart_frames = count()?,
        "hotstart_unmatch_thresh" => options.hotstart_unmatched = count()?,
        "hotstart_dup_thresh" => options.hotstart_duplicates = count()?,
        "suppress_unmatched_only_within_hotstart" => options.hide_only_within_hotstart = switch()?,
        "init_trk_keep_alive" => options.initial_keep_alive = counter()?,
        "max_trk_keep_alive" => options.max_keep_alive = counter()?,
        "min_trk_keep_alive" => options.min_keep_alive = counter()?,
        "decrease_trk_keep_alive_for_empty_masklets" => options.empty_decreases_keep_alive = switch()?,
        "suppress_overlapping_based_on_recent_occlusion_threshold" => options.occlusion_iou = share()?,
        "recondition_every_nth_frame" => options.recondition_frames = count()?,
        "fill_hole_area" => options.fill_hole_area = count()?,
        "use_memory_selection" => options.memory_score_threshold = switch()?.then_some(0.01),
        "mf_threshold" => options.memory_score_threshold = Some(share()?),
        "max_cond_frames_in_attn" => options.conditioning_frames = count()?,
        "max_obj_ptrs_in_encoder" => options.pointer_frames = count()?,
        "refinement_detector_cond_frame_removal_window" => options.click_window = count()?,
        _ => return Err(format!("the option {name} is not known").into()),
    }
    Ok(())
}

"""Faults, and the test that has to notice each."""

import typing


class Fault(typing.NamedTuple):
    name: str
    file: str
    old: str
    new: str
    test: str


BEHAVIOUR = [
    Fault("a source that waits hides the end", "src/pipeline/reader.rs",
          "Err(RecvTimeoutError::Timeout) if self.shared.is_stopping() => return None,",
          "Err(RecvTimeoutError::Timeout) if false => return None,",
          "a_silent_source_does_not_hold_up_the_end"),
    Fault("a second Ctrl-C loses the video", "src/pipeline/reader.rs",
          "frames.recv_timeout(deadline.saturating_duration_since(Instant::now()))",
          "frames.recv_timeout(deadline.saturating_duration_since(Instant::now()) + Duration::from_secs(3600))",
          "an_idle_stdin_does_not_hold_up_the_end"),
    Fault("earlier results are emptied at once", "src/sink/lines.rs",
          "Ok(file) if file.metadata().map_err(cannot)?.is_file() => Target::Earlier(file),",
          "Ok(file) if file.metadata().map_err(cannot)?.is_file() => { file.set_len(0).map_err(cannot)?; "
          "Target::Earlier(file) }",
          "earlier_results_stay_if_the_model_cannot_be_loaded"),
    Fault("an HTTP video that ends early is complete", "src/source/capture.rs",
          "return match self.missing_from(self.info.frame_count, None) {",
          "return match self.missing_from(None, None) {",
          "a_file_on_a_server_ends_like_a_file"),
    Fault("tracks nobody looked for grow old", "tracking/src/byte_track.rs",
          "            if !is_watched(followed.track.class_id) {\n                followed.frames_unwatched",
          "            if false && !is_watched(followed.track.class_id) {\n                followed.frames_unwatched",
          "tracks_of_classes_that_were_not_looked_for"),
    Fault("each connection restarts the deadline", "src/source/reconnecting.rs",
          "                    self.has_frame = false;\n                    self.source = Some(source);",
          "                    self.has_frame = false;\n                    self.loss = None;\n"
          "                    self.source = Some(source);",
          "a_server_that_accepts_and_closes"),
    Fault("--fps is ignored", "cli/src/commands/video/source.rs",
          "let Some(rate) = fps.filter(|_| source.info().frame_rate.is_none()) else { return source };",
          "let Some(rate) = fps.filter(|_| false) else { return source };",
          "fps_is_the_rate_of_sources_that_have_none"),
    Fault("box sizes of MP4 files overflow", "src/source/container/iso.rs",
          "        let end = at.saturating_add(size);", "        let end = at + size;",
          "sizes_and_durations_at_the_limit_do_not_panic"),
    Fault("frame rates near zero", "src/source/raw.rs",
          ".filter(|rate| FRAME_RATES.contains(rate));",
          ".filter(|rate| *rate > 0.0 || FRAME_RATES.contains(rate));",
          "formats_are_parsed_and_printed"),
    Fault("millions of layers", "export/src/config.rs",
          '"num_attention_heads" => 1024,', '"num_attention_heads" => usize::MAX as _,',
          "contradictions_name_the_key"),
    Fault("the cache of exports ignores the configuration", "src/model.rs",
          "let settings = settings_hash(&files)?;", "let settings = settings_hash(&files[..0])?;",
          "a_changed_configuration_is_exported_again"),
    Fault("text caches mix number formats", "src/text_cache.rs",
          "        if found != expected {\n", "        if found != expected && key != \"number_format\" {\n",
          "a_text_cache_has_one_number_format"),
    Fault("damage inside an MKV is not said", "src/source/capture.rs",
          "if let Some(byte) = container.damaged_at {",
          "if let Some(byte) = container.damaged_at.filter(|_| false) {",
          "an_mkv_that_is_damaged_midway"),
    Fault("the camera's motion is not applied", "src/pipeline/stages.rs",
          "            tracker.compensate(&motion);\n", "            let _ = motion;\n",
          "tracks_survive_a_shaken_camera"),
]

PARITY = "every_output_of_every_graph"

EXPORTER = [
    Fault("a residual is left out", "export/src/model/backbone.rs",
          "            x = g.add(&x, &mixed);", "            x = mixed;", PARITY),
    Fault("x and y are exchanged", "export/src/model/position.rs",
          ".flat_map(|&(y, x)| [x, y])", ".flat_map(|&(y, x)| [y, x])", PARITY),
    Fault("the mean of the prompt has another divisor", "export/src/model/scoring.rs",
          "g.clip(&count, Some(1.0), None)", "g.clip(&count, Some(2.5), None)", PARITY),
    Fault("logits are not scaled", "export/src/model/scoring.rs",
          "1.0 / (width as f32).sqrt()", "1.0 / (width as f32 - 1.0).sqrt()", PARITY),
    Fault("the second norm has the first one's name", "export/src/model/backbone.rs",
          'format!("{name}.layer_norm2")', 'format!("{name}.layer_norm1")', PARITY),
    Fault("another epsilon in the backbone", "export/src/model/backbone.rs",
          'format!("{name}.layer_norm1"), v.layer_norm_eps', 'format!("{name}.layer_norm1"), 1e-5', PARITY),
    Fault("an exact GELU becomes its approximation", "export/src/model/layers.rs",
          "Activation::Gelu => self.gelu(x, false),", "Activation::Gelu => self.gelu(x, true),", PARITY),
    Fault("folded attention has another scale", "export/src/fold.rs",
          "/ (size as f64).sqrt();", "/ (size as f64 + 1.0).sqrt();", PARITY),
]

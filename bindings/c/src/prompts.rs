//! The classes to detect.

use std::ffi::{c_char, c_int};
use std::sync::Mutex;

use ocelli::{BoundingBox, Prompt, Prompts, Result};

use crate::handle::Registry;
use crate::status::{done, filled, invalid, ocelli_status};
use crate::text::{optional_text, place, text, values};

/// The classes to detect: names, example boxes, or both. A class is known by its number, from 0.
pub struct ocelli_prompts(());

static PROMPTS: Registry<ocelli_prompts, Mutex<Vec<Prompt>>> = Registry::new("prompts");

/// The classes of a handle.
///
/// # Errors
/// `InvalidArgument` for a handle that is not open, no class at all, or too many.
pub(crate) fn find(prompts: *const ocelli_prompts) -> Result<Prompts> {
    PROMPTS.with(prompts, |classes| Prompts::new(classes.iter().cloned()))
}

/// Creates prompts from names such as "dog" and "red apple", in UTF-8. There may be none, if classes are added afterwards.
///
/// Free the prompts with `ocelli_prompts_free`.
///
/// Pointers: `names` points to `count` strings; `prompts` points to a handle to write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ocelli_prompts_create(
    names: *const *const c_char,
    count: usize,
    prompts: *mut *mut ocelli_prompts,
) -> ocelli_status {
    // SAFETY: the caller's promise.
    filled(unsafe { place(prompts, "prompts") }, || {
        // SAFETY: the caller passes as many strings.
        let names = unsafe { values(names, count, "names") }?;
        let named = |(index, &name): (usize, &*const c_char)| {
            // SAFETY: the caller passes strings.
            unsafe { text(name, &format!("names[{index}]")) }.map(Prompt::new)
        };
        let classes = names.iter().enumerate().map(named).collect::<Result<Vec<Prompt>>>()?;
        if !classes.is_empty() {
            Prompts::new(classes.iter().cloned())?;
        }
        Ok(PROMPTS.add(Mutex::new(classes)))
    })
}

/// Adds a class.
///
/// `phrase` is what to detect; null for example boxes alone, which `ocelli_prompts_add_example` adds. `label` is the name in
/// results; null for the phrase, or "visual" without one.
///
/// Pointers: `phrase` and `label` are strings or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ocelli_prompts_add(
    prompts: *mut ocelli_prompts,
    phrase: *const c_char,
    label: *const c_char,
) -> ocelli_status {
    done(|| {
        // SAFETY: the caller passes strings or null.
        let (phrase, label) = unsafe { (optional_text(phrase, "phrase")?, optional_text(label, "label")?) };
        let mut prompt = phrase.map_or_else(|| Prompt::visual(ocelli::prompt::VISUAL), Prompt::new);
        if let Some(label) = label {
            prompt = prompt.with_label(label);
        }
        Prompts::new([prompt.clone()])?;
        PROMPTS.with(prompts, |classes| {
            classes.push(prompt);
            Ok(())
        })
    })
}

/// Adds an example to a class: a box around an instance in the image that is searched, in its pixels. `wanted` is 1, or 0
/// for what the class is not.
#[unsafe(no_mangle)]
pub extern "C" fn ocelli_prompts_add_example(
    prompts: *mut ocelli_prompts,
    class_id: usize,
    x1: f32,
    y1: f32,
    x2: f32,
    y2: f32,
    wanted: c_int,
) -> ocelli_status {
    done(|| {
        PROMPTS.with(prompts, |classes| {
            let count = classes.len();
            let prompt = classes
                .get_mut(class_id)
                .ok_or_else(|| invalid(format!("class_id is {class_id}: there are {count} classes")))?;
            let extended = prompt.clone().with_exemplar(BoundingBox::new(x1, y1, x2, y2), wanted != 0);
            Prompts::new([extended.clone()])?;
            *prompt = extended;
            Ok(())
        })
    })
}

/// Frees prompts; does nothing with a null pointer. What uses them keeps what it needs.
#[unsafe(no_mangle)]
pub extern "C" fn ocelli_prompts_free(prompts: *mut ocelli_prompts) -> ocelli_status {
    done(|| PROMPTS.remove(prompts).map(drop))
}

//! The classes to detect.

use std::ffi::{c_char, c_int};
use std::sync::{Arc, Mutex, PoisonError};

use ocelli::{BoundingBox, Prompt, Prompts, Result};

use crate::handle::Registry;
use crate::status::{done, filled, invalid, ocelli_status};
use crate::text::{optional_text, place, text, values};

/// The classes to detect: names, example boxes, or both. A class is known by its number, from 0.
pub struct ocelli_prompts(());

static PROMPTS: Registry<ocelli_prompts, Mutex<Classes>> = Registry::new("prompts");

#[derive(Default)]
struct Classes {
    each: Vec<Prompt>,
    /// All of them, once they are used.
    all: Option<Arc<Prompts>>,
}

/// The classes of a handle.
///
/// # Errors
/// `InvalidArgument` for a handle that is not open, no class at all, or too many.
pub(crate) fn find(prompts: *const ocelli_prompts) -> Result<Arc<Prompts>> {
    let classes = PROMPTS.find(prompts)?;
    let mut classes = classes.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(all) = &classes.all {
        return Ok(all.clone());
    }
    let all = Arc::new(Prompts::new(classes.each.iter().cloned())?);
    classes.all = Some(all.clone());
    Ok(all)
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
        let each = names.iter().enumerate().map(named).collect::<Result<Vec<Prompt>>>()?;
        let all = if each.is_empty() { None } else { Some(Arc::new(Prompts::new(each.iter().cloned())?)) };
        Ok(PROMPTS.add(Mutex::new(Classes { each, all })))
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
        change(prompts, |each| {
            each.push(prompt);
            Ok(())
        })
    })
}

/// Adds an example to a class: a box around an instance in the picture that is searched, in its pixels. `wanted` is 1, or 0
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
        change(prompts, |each| {
            let count = each.len();
            let prompt = each
                .get_mut(class_id)
                .ok_or_else(|| invalid(format!("class_id is {class_id}: there are {count} classes")))?;
            let extended = prompt.clone().with_exemplar(BoundingBox::new(x1, y1, x2, y2), wanted != 0);
            Prompts::new([extended.clone()])?;
            *prompt = extended;
            Ok(())
        })
    })
}

fn change(prompts: *const ocelli_prompts, change: impl FnOnce(&mut Vec<Prompt>) -> Result<()>) -> Result<()> {
    let classes = PROMPTS.find(prompts)?;
    let mut classes = classes.lock().unwrap_or_else(PoisonError::into_inner);
    change(&mut classes.each)?;
    classes.all = None;
    Ok(())
}

/// Frees prompts; does nothing with a null pointer. What uses them keeps what it needs.
#[unsafe(no_mangle)]
pub extern "C" fn ocelli_prompts_free(prompts: *mut ocelli_prompts) -> ocelli_status {
    done(|| PROMPTS.remove(prompts).map(drop))
}

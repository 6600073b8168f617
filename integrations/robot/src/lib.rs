//! Nodes behave alike under every middleware because they share this crate.
//!
//! | type | what it is |
//! |---|---|
//! | [`LiveDetector`] | a detector and a tracker whose classes, confidence and engine change while frames arrive |
//! | [`Settings`] | what a node is started with |
//! | [`parameters`] | the settings as parameters, which middlewares name, set and show |
//! | [`camera`] | the pixels of a camera's message, borrowed where the format allows it |
//! | [`messages`] | messages of ROS 2 and their definitions |
//! | [`cdr`] | the serialisation of these messages in recordings |
//! | [`Newest`] | a place for one frame: a newer one replaces it |
//! | [`Failures`] | which failures to report, of those that repeat |

pub mod camera;
pub mod cdr;
mod definitions;
mod failures;
mod live_detector;
pub mod messages;
mod newest;
pub mod parameters;
mod results;
mod settings;

pub use failures::Failures;
pub use live_detector::LiveDetector;
pub use newest::Newest;
pub use results::{detection_array, instance_image, label_info};
pub use settings::Settings;

//! Messages of ROS 2, as they are serialised: `std_msgs`, `sensor_msgs`, and `vision_msgs` 4.x (Humble and later).

use serde::{Deserialize, Serialize};

use crate::definitions::{self, Definition};

/// A message with a name and a definition.
pub trait RosMessage: Serialize {
    /// The package: `sensor_msgs`.
    const PACKAGE: &'static str;
    /// The type: `Image`.
    const NAME: &'static str;
    /// The definition of the message, followed by those of the messages in it.
    const DEFINITIONS: &'static [Definition];

    /// The name that recordings use: `sensor_msgs/msg/Image`.
    fn full_name() -> String {
        format!("{}/msg/{}", Self::PACKAGE, Self::NAME)
    }

    /// The text that recordings have as the schema of the message.
    fn schema() -> String {
        definitions::schema(Self::DEFINITIONS)
    }
}

/// A point in time: `builtin_interfaces/Time`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Time {
    /// Seconds since the start of the clock.
    pub sec: i32,
    /// Nanoseconds, 0 to 999,999,999.
    pub nanosec: u32,
}

impl Time {
    /// The time since the start of the clock; zero for a time before it.
    pub fn since_start(self) -> std::time::Duration {
        let seconds = u64::try_from(self.sec).unwrap_or(0);
        std::time::Duration::from_secs(seconds) + std::time::Duration::from_nanos(u64::from(self.nanosec))
    }
}

/// The time and the frame of a message: `std_msgs/Header`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// Time when the data was taken.
    pub stamp: Time,
    /// The coordinate frame.
    pub frame_id: String,
}

/// Pixels: `sensor_msgs/Image`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Image {
    /// Time and camera.
    pub header: Header,
    /// Rows.
    pub height: u32,
    /// Columns.
    pub width: u32,
    /// The pixel format: `rgb8`.
    pub encoding: String,
    /// Not 0 if values of several bytes have the highest first.
    pub is_bigendian: u8,
    /// Bytes from one row to the next.
    pub step: u32,
    /// `step` × `height` bytes.
    #[serde(with = "serde_bytes")]
    pub data: Vec<u8>,
}

/// An image file: `sensor_msgs/CompressedImage`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CompressedImage {
    /// Time and camera.
    pub header: Header,
    /// The file format: `jpeg`, or as image_transport writes it, `bgr8; jpeg compressed bgr8`.
    pub format: String,
    /// The file.
    #[serde(with = "serde_bytes")]
    pub data: Vec<u8>,
}

/// The detections in one image: `vision_msgs/Detection2DArray`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Detection2DArray {
    /// That of the image.
    pub header: Header,
    /// The highest score first.
    pub detections: Vec<Detection2D>,
}

/// One object: `vision_msgs/Detection2D`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Detection2D {
    /// That of the image.
    pub header: Header,
    /// Its classes.
    pub results: Vec<ObjectHypothesisWithPose>,
    /// Its box in pixels of the image.
    pub bbox: BoundingBox2D,
    /// Its track; empty without one.
    pub id: String,
}

/// A class and a pose: `vision_msgs/ObjectHypothesisWithPose`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ObjectHypothesisWithPose {
    /// The class.
    pub hypothesis: ObjectHypothesis,
    /// The pose, all zeros: a camera alone does not see it.
    pub pose: PoseWithCovariance,
}

/// A class and its score: `vision_msgs/ObjectHypothesis`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ObjectHypothesis {
    /// The phrase of the class.
    pub class_id: String,
    /// 0 to 1.
    pub score: f64,
}

/// `geometry_msgs/PoseWithCovariance`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PoseWithCovariance {
    /// The pose.
    pub pose: Pose,
    /// Rows of the covariance of x, y, z and the rotations about them.
    pub covariance: [[f64; 6]; 6],
}

/// `geometry_msgs/Pose`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pose {
    /// x, y and z.
    pub position: [f64; 3],
    /// x, y, z and w of a quaternion.
    pub orientation: [f64; 4],
}

impl Default for Pose {
    /// At the origin, not rotated, as in ROS.
    fn default() -> Self {
        Self { position: [0.0; 3], orientation: [0.0, 0.0, 0.0, 1.0] }
    }
}

/// A box that may be rotated: `vision_msgs/BoundingBox2D`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BoundingBox2D {
    /// Its centre and rotation.
    pub center: Pose2D,
    /// Its width.
    pub size_x: f64,
    /// Its height.
    pub size_y: f64,
}

/// `vision_msgs/Pose2D`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Pose2D {
    /// x and y in pixels.
    pub position: [f64; 2],
    /// The rotation in radians: 0.
    pub theta: f64,
}

/// The method that detects, and where its classes are described: `vision_msgs/VisionInfo`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct VisionInfo {
    /// Time of the change.
    pub header: Header,
    /// The name of the method.
    pub method: String,
    /// The topic of the [`LabelInfo`].
    pub database_location: String,
    /// Changes with the classes.
    pub database_version: i32,
}

/// The classes: `vision_msgs/LabelInfo`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LabelInfo {
    /// Time of the change.
    pub header: Header,
    /// The classes in their order.
    pub class_map: Vec<VisionClass>,
    /// The least score.
    pub threshold: f32,
}

/// A class: `vision_msgs/VisionClass`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct VisionClass {
    /// Its place from 0.
    pub class_id: u16,
    /// Its phrase.
    pub class_name: String,
}

macro_rules! ros_messages {
    ($($package:literal $message:ident: $($definition:ident)*;)*) => {$(
        impl RosMessage for $message {
            const PACKAGE: &'static str = $package;
            const NAME: &'static str = stringify!($message);
            const DEFINITIONS: &'static [Definition] = &[$(definitions::$definition),*];
        }
    )*};
}

ros_messages! {
    "sensor_msgs" Image: IMAGE HEADER TIME;
    "sensor_msgs" CompressedImage: COMPRESSED_IMAGE HEADER TIME;
    "vision_msgs" Detection2DArray: DETECTION_2D_ARRAY HEADER TIME DETECTION_2D OBJECT_HYPOTHESIS_WITH_POSE
        OBJECT_HYPOTHESIS POSE_WITH_COVARIANCE POSE POINT QUATERNION BOUNDING_BOX_2D POSE_2D POINT_2D;
    "vision_msgs" VisionInfo: VISION_INFO HEADER TIME;
    "vision_msgs" LabelInfo: LABEL_INFO HEADER TIME VISION_CLASS;
}

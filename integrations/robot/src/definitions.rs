//! The definitions of the messages, as ROS 2's packages have them, without comments.

/// A name such as `std_msgs/Header`, and the fields.
pub type Definition = (&'static str, &'static str);

pub(crate) const TIME: Definition = ("builtin_interfaces/Time", "int32 sec\nuint32 nanosec\n");
pub(crate) const HEADER: Definition = ("std_msgs/Header", "builtin_interfaces/Time stamp\nstring frame_id\n");
pub(crate) const IMAGE: Definition = (
    "sensor_msgs/Image",
    "std_msgs/Header header\nuint32 height\nuint32 width\nstring encoding\nuint8 is_bigendian\nuint32 step\nuint8[] data\n",
);
pub(crate) const COMPRESSED_IMAGE: Definition =
    ("sensor_msgs/CompressedImage", "std_msgs/Header header\nstring format\nuint8[] data\n");
pub(crate) const POINT: Definition = ("geometry_msgs/Point", "float64 x\nfloat64 y\nfloat64 z\n");
pub(crate) const QUATERNION: Definition =
    ("geometry_msgs/Quaternion", "float64 x 0\nfloat64 y 0\nfloat64 z 0\nfloat64 w 1\n");
pub(crate) const POSE: Definition =
    ("geometry_msgs/Pose", "geometry_msgs/Point position\ngeometry_msgs/Quaternion orientation\n");
pub(crate) const POSE_WITH_COVARIANCE: Definition =
    ("geometry_msgs/PoseWithCovariance", "geometry_msgs/Pose pose\nfloat64[36] covariance\n");
pub(crate) const POINT_2D: Definition = ("vision_msgs/Point2D", "float64 x\nfloat64 y\n");
pub(crate) const POSE_2D: Definition =
    ("vision_msgs/Pose2D", "vision_msgs/Point2D position\nfloat64 theta\n");
pub(crate) const BOUNDING_BOX_2D: Definition =
    ("vision_msgs/BoundingBox2D", "vision_msgs/Pose2D center\nfloat64 size_x\nfloat64 size_y\n");
pub(crate) const OBJECT_HYPOTHESIS: Definition =
    ("vision_msgs/ObjectHypothesis", "string class_id\nfloat64 score\n");
pub(crate) const OBJECT_HYPOTHESIS_WITH_POSE: Definition = (
    "vision_msgs/ObjectHypothesisWithPose",
    "vision_msgs/ObjectHypothesis hypothesis\ngeometry_msgs/PoseWithCovariance pose\n",
);
pub(crate) const DETECTION_2D: Definition = (
    "vision_msgs/Detection2D",
    "std_msgs/Header header\nvision_msgs/ObjectHypothesisWithPose[] results\nvision_msgs/BoundingBox2D bbox\nstring id\n",
);
pub(crate) const DETECTION_2D_ARRAY: Definition =
    ("vision_msgs/Detection2DArray", "std_msgs/Header header\nvision_msgs/Detection2D[] detections\n");
pub(crate) const VISION_INFO: Definition = (
    "vision_msgs/VisionInfo",
    "std_msgs/Header header\nstring method\nstring database_location\nint32 database_version\n",
);
pub(crate) const VISION_CLASS: Definition =
    ("vision_msgs/VisionClass", "uint16 class_id\nstring class_name\n");
pub(crate) const LABEL_INFO: Definition = (
    "vision_msgs/LabelInfo",
    "std_msgs/Header header\nvision_msgs/VisionClass[] class_map\nfloat32 threshold\n",
);

/// The fields of the first definition, then each other one below a line and its name, as rosbag2 writes them.
pub(crate) fn schema(definitions: &[Definition]) -> String {
    let mut text = String::new();
    for (place, (name, fields)) in definitions.iter().enumerate() {
        if place > 0 {
            text.push_str(&"=".repeat(80));
            text.push_str("\nMSG: ");
            text.push_str(name);
            text.push('\n');
        }
        text.push_str(fields);
    }
    text
}

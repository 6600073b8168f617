"""Starts ocelli-ros2, which must be on the PATH: it is a program, not a package of ROS.

ros2 launch integrations/ros2/launch/ocelli.launch.py image:=/camera/image_raw classes:="[person, red apple]"
"""

from launch import LaunchDescription
from launch.actions import DeclareLaunchArgument, ExecuteProcess
from launch.substitutions import LaunchConfiguration

ARGUMENTS = {
    "image": ("/camera/image_raw", "topic of the images"),
    "image_transport": ("raw", "raw or compressed"),
    "detections": ("/detections", "topic of the detections"),
    "classes": ("[person]", "words or phrases, a list in YAML"),
    "confidence": ("0.5", "least score"),
    "engine": ("auto", "auto, embedded, openvino, onnxruntime, cuda, …"),
    "model": ("built-in", "folder of the model"),
    "track": ("true", "whether objects are tracked"),
}
TOPICS = ["image", "detections"]


def generate_launch_description():
    command = ["ocelli-ros2", "--ros-args"]
    for name in ARGUMENTS:
        command += ["-r" if name in TOPICS else "-p", [f"{name}:=", LaunchConfiguration(name)]]
    return LaunchDescription(
        [
            *(
                DeclareLaunchArgument(name, default_value=value, description=text)
                for name, (value, text) in ARGUMENTS.items()
            ),
            # Started again after a failure.
            ExecuteProcess(cmd=command, output="screen", respawn=True, respawn_delay=2.0),
        ]
    )

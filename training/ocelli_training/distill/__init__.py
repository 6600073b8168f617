"""Distillation: a student learns the features of a SAM3 detector's image backbone, from images alone.

`models` has the teacher and the students, `images` the data, `losses` what is minimised, `processes` how several
processes share a step, `state` and `journal` what a run leaves on disk, and `loop` the steps.
"""

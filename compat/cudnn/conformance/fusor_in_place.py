"""Owns the pytest plugin that puts fusor's library in cuDNN's place: the wheel of cudnn-frontend opens the library of the wheel
nvidia-cudnn by its path, where it finds one. FUSOR_CUDNN is the path of fusor's."""

import glob
import os

_found = glob.glob


def _glob(pattern, *arguments, **options):
    if "nvidia/cudnn/lib/libcudnn.so" in str(pattern):
        return [os.environ["FUSOR_CUDNN"]]
    return _found(pattern, *arguments, **options)


glob.glob = _glob

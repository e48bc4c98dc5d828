"""Becomes a server that reads Hugging Face folders, over a GGUF file's weights in bfloat16.

``python from_hugging_face_folder.py MODEL.gguf FOLDER PROGRAM…``, in an environment with transformers and gguf. The
folder is written once; the word FOLDER in the program's words stands for it.
"""

import os
import sys
from pathlib import Path

import torch
import transformers
from transformers import AutoModelForCausalLM, AutoTokenizer

model, folder, *program = sys.argv[1:]
path, target = Path(model), Path(folder)
if not (target / "config.json").exists():
    # Newer releases keep the blocks of the file, which cannot be saved, unless they are told to unpack them.
    keeps_blocks = hasattr(transformers, "GgufConfig")
    options = {"quantization_config": transformers.GgufConfig(dequantize=True)} if keeps_blocks else {}
    weights = AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.bfloat16, **options)
    AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name).save_pretrained(target)
    weights.save_pretrained(target)
words = [folder if word == "FOLDER" else word for word in program]
os.execv(words[0], words)

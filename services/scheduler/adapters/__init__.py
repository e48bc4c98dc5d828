"""What the ports need from outside: gRPC, tokenizers, templates, grammars and files."""

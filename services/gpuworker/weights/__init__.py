"""Reading model weights from files."""

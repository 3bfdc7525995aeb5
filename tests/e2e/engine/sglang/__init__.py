"""In SGLang's place, where only what happens around a server is tested."""

from __future__ import annotations

import sys

from eagle_lab.serve.launch import CPU_OPERATORS

# as PYTHONPATH does for the server; the operators import neither SGLang nor eagle_lab
sys.path.insert(0, str(CPU_OPERATORS))

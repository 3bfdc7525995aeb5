"""eagle-lab plan: prints what a config resolves to, before anything starts."""

from eagle_lab.config.schema import Config


def run(config: Config, out) -> int:
    print(config.spec, out)
    return 0

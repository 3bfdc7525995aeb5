"""One file per check. A module has

NAME         as tables and doctor.ignore have it
CATCHES      in one sentence, for docs/doctor.md
REPORTS      public reports of the fault
NEEDS        parts of the Subject without which it is skipped: head, target, dataset
LEADS_TO     checks that fail, too, where this one does
look(subject) -> Finding; LabError and Skipped as well

Where SGLang and vLLM differ it asks subject.engine; what one of them does not read is Skipped.
"""

"""Special tokens that every run has; modalities add their own."""

BOS, EOS, PAD = "<s>", "</s>", "<pad>"
SYSTEM, USER, ASSISTANT, END = "<|system|>", "<|user|>", "<|assistant|>", "<|end|>"
CORE_MARKS = (PAD, BOS, EOS, SYSTEM, USER, ASSISTANT, END)

"""What other trainers call the fields of a run file, and components."""

from __future__ import annotations

from kosmos.names import nearest, plain

ELSEWHERE = {
    "a step takes data.lanes rows of data.tokens_per_pack tokens": (
        "batch_size micro_batch_size global_batch_size local_batch_size per_device_batch_size "
        "per_device_train_batch_size"
    ),
    "data.lanes says what a step takes, and each process accumulates its part": (
        "gradient_accumulation_steps accumulate_grad_batches accum_grad grad_accum grad_accum_steps "
        "gradient_accumulation"
    ),
    "a model of transformers is backbone: {name: hf, model: ID}": (
        "model model_id model_name model_name_or_path model_path"
    ),
    "kosmos train --resume FOLDER": "resume resume_from_checkpoint",
    "every step is a row of metrics.jsonl": "logging_steps log_interval",
    "rows are always packed": "packing neat_packing",
    "streams.NAME.freeze": "freeze_vit freeze_vision_tower freeze_encoder freeze_audio_tower",
    "backbone.freeze": "freeze_llm freeze_language_model",
    "streams.NAME.freeze_connector": "freeze_aligner freeze_multi_modal_projector freeze_projector",
    "backbone.freeze and streams.NAME.freeze, so that connectors alone are trained": "tune_mm_mlp_adapter",
    "streams.NAME.learning_rate": "vit_lr vision_lr lr_vision_backbone",
    "streams.NAME.connector_learning_rate": "aligner_lr mm_projector_lr projector_lr lr_mp",
    "backbone.lora and streams.NAME.lora, such as lora: {rank: 16, alpha: 32}": (
        "finetuning_type lora peft peft_config lora_config train_type tuner_type use_lora use_peft"
    ),
    "backbone.lora.adapter": "adapter_name_or_path adapter_path adapters lora_path peft_model_id",
    "backbone.lora.rank": "lora_r lora_rank",
    "backbone.lora.alpha": "lora_alpha",
    "backbone.lora.layers": "lora_target lora_target_modules target_modules",
    "backbone.lora.whole": "modules_to_save additional_target",
    "backbone.lora.dropout": "lora_dropout",
    "evaluate.every_steps says how often, in steps": "eval_strategy evaluation_strategy",
    "backbone.lora.quantize: nf4 keeps weights that are read in 4 bits, beside updates that learn": (
        "quantization_bit load_in_4bit load_in_8bit quant_bits bnb_4bit_quant_type quant_method"
    ),
    "only the assistant's turns are learned; loss: false leaves one out (docs: Use your own data)": (
        "loss_scale train_on_prompt train_on_inputs mask_history assistant_only_loss completion_only_loss"
    ),
    "a system's turn is a row's: a turn of role system, or a column system": "system default_system system_prompt",
    "modalities.NAME.processor and streams.NAME.encoder say how media are read": (
        "max_pixels image_max_pixels video_max_pixels image_resolution"
    ),
    "a row names a film for its pictures, and once more as audio for its sound (docs: Use your own data)": (
        "use_audio_in_video use_audio_from_video"
    ),
    "documents are scored in rows as in training": "per_device_eval_batch_size eval_batch_size",
    "train.schedule: {name: cosine, final: SHARE}, of the peak": (
        "min_lr min_lr_ratio min_lr_rate min_lr_factor eta_min"
    ),
    "a run always scores before its first step and after its last": "eval_on_start do_eval do_train",
    "evaluate.generate": "predict_with_generate",
    "evaluate.generate.max_new_tokens": "generation_max_length",
    "kosmos generate --max-new-tokens, --temperature, --top-k and --top-p; kosmos eval --generate is greedy": (
        "max_new_tokens do_sample temperature top_k top_p generation_config"
    ),
    "kosmos eval says the loss, whose exponential the perplexity is": "perplexity ppl",
    "kosmos eval says the bits per byte, by which models of other tokenizers compare": (
        "bpb bits_per_byte bpc bits_per_character"
    ),
    "metrics.jsonl has mfu of each step, and kosmos train shows it": ("mfu model_flops_utilization"),
    "checkpoint.keep_best and kosmos eval --step best": "load_best_model_at_end",
    "evaluate.best": "metric_for_best_model monitor",
    "evaluate.best names a loss, of which lower is better, an exact match, of which higher is, or a metric, which says "
    "it itself": "greater_is_better",
    "attention is chosen by the hardware, and documents never see each other": (
        "attn_impl attn_implementation flash_attn use_flash_attention_2"
    ),
    "there is no moving average of the weights as a run goes; kosmos checkpoint average takes that of checkpoints": (
        "ema ema_decay use_ema ema_model model_ema swa lawa"
    ),
    "weights are drawn by train.seed, and built-in parts take no other scale of them; init and pretrained parts begin "
    "with weights that there are": "init_std initializer_range init_method init_method_std",
    "each run has a folder of its own, and none is written over": "overwrite_output_dir",
    "data.sources.N.template lays out rows, tokenizer.turns the turns of chats": (
        "chat_template template template_type turns apply_chat_template"
    ),
    "data.sources.N.columns": "columns column_mapping image_column text_column caption_column audio_column",
    "data.sources.N.weight": "probs interleave_probs",
    "data.sources.N.options: {learn: last} learns the last turn of the assistant alone": (
        "mask_history last_turn_only train_on_last_turn_only"
    ),
    "train.objective: {name: dpo, beta: 0.1}, or simpo or orpo, learns by preferences": (
        "pref_beta dpo_beta rlhf_type dpo beta"
    ),
    "train.objective: {name: dpo, loss: sigmoid, hinge or ipo}": "pref_loss loss_type",
    "train.objective: {name: dpo, sft: SHARE} adds the cross entropy of the better answer": "pref_ftx rpo_alpha",
    "train.objective: {name: simpo, gamma: MARGIN}": "simpo_gamma",
    "rows that say of one answer alone whether it is good (KTO) are not read": (
        "kto_chosen_weight kto_rejected_weight desirable_weight undesirable_weight"
    ),
    "train.objective of dpo compares with the model as the run began with it; init says which that is": (
        "ref_model reference_model ref_model_path"
    ),
    "data.sources.N.path names each file or folder, and columns what stands where in its rows": "dataset_dir",
    "there is no label smoothing: the loss is that of the text": "label_smoothing label_smoothing_factor",
    "there is no noise on embeddings; dropout is an option of the backbone": "neftune_noise_alpha neftune_alpha",
    "data.sources.N.limit": "max_samples max_train_samples num_samples train_dataset_sample",
    "trackers: [tensorboard, wandb]": (
        "use_wandb use_tensorboard wandb tensorboard wandb_project enable_wandb enable_tensorboard"
    ),
    "train.fp8": "float8 fp8_recipe float8_recipe fp8_format enable_fp8 enable_float8_linear float8_recipe_name",
    "train.precision is auto, fp32 or bf16": "bf16 fp16 dtype torch_dtype mixed_precision",
    "train.steps": "max_steps train_iters",
    "train.epochs": "epochs num_epochs num_train_epochs max_epochs max_epoch",
    "train.tokens": "tokens max_tokens train_tokens num_tokens total_tokens token_budget",
    "train.max_time": "max_duration time_limit max_train_time wall_time walltime max_wall_time max_hours max_runtime",
    "train.learning_rate": "lr",
    "train.optimizer": "optim optimizer",
    "train.optimizer.betas": "betas adam_betas adam_beta1 adam_beta2 beta1 beta2",
    "train.optimizer.eps": "adam_epsilon adam_eps",
    "train.schedule": "scheduler lr_scheduler lr_scheduler_type lr_decay_style lr_decay_iters",
    "train.schedule: {name: wsd, decay_steps: N} goes down in that many steps; others go down until the last": (
        "cooldown cooldown_steps decay_steps lr_decay_steps num_decay_steps"
    ),
    "train.schedule: {name: wsd, decay: SHARE}, of the steps": "decay_ratio lr_decay_ratio",
    "train.warmup_steps": "warmup warmup_ratio lr_warmup_iters lr_warmup_fraction",
    "train.clip_norm": "grad_clip gradient_clipping max_grad_norm clip_grad clip_grad_norm gradient_clip_val",
    "train.weight_decay": "weight_decay wd",
    "train.compile": "torch_compile compile",
    "data.tokens_per_pack": (
        "block_size context_length cutoff_len max_len max_length max_seq_length seq_len seq_length sequence_length "
        "model_max_length"
    ),
    "data.long_chats": "truncation_strategy",
    "data.held_out": "val_size val_ratio validation_split test_size split_dataset_ratio",
    "data.held_out is the share of rows that is held out, and a column split of theirs (train, test) goes before it": (
        "split splits"
    ),
    "token numbers are not read: Kosmos tokenizes text itself, so decode them and name the text in data.sources": (
        "input_ids token_ids pretokenized tokenized skip_tokenization megatron mmap memmap indexed_dataset dataset_impl"
    ),
    "streams.NAME.encoder": "encoder vision_tower vision_model audio_tower mm_vision_tower",
    "init": "init_from pretrained_checkpoint load_from pretrain_mm_mlp_adapter",
    "streams.NAME.connector": "mm_projector_type projector mm_projector",
    "data.workers": "num_workers dataloader_num_workers preprocessing_num_workers dataset_num_proc",
    "data.sources": "dataset datasets dataset_path train_data data_path manifest_filepath",
    "evaluate.every_steps": "eval_steps eval_interval val_check_interval",
    "evaluate.sources": "eval_dataset val_dataset test_dataset validation_dataset eval_data val_data test_data",
    "evaluate.patience": "early_stop_patience early_stopping early_stopping_patience",
    "checkpoint.every_steps": "save_steps save_interval interval",
    "checkpoint.keep_last": "save_total_limit",
    "parallel.strategy": "deepspeed fsdp",
    "parallel.tensor": "tensor_parallel_size tensor_parallel_degree tensor_model_parallel_size",
    "parallel.sequence": "context_parallel_size context_parallel_degree ulysses_parallel_size sequence_parallel_size",
    "parallel.strategy: fsdp, or hsdp with parallel.shards": (
        "data_parallel_shard_degree data_parallel_replicate_degree use_distributed_optimizer"
    ),
    "there is no pipeline of stages and none of experts; parallel.strategy, parallel.tensor and parallel.sequence": (
        "pipeline_parallel_degree pipeline_model_parallel_size expert_parallel_degree expert_model_parallel_size"
    ),
    "the built-in decoder has no experts; a model of transformers may: backbone: {name: hf, model: ID}": (
        "moe mixture_of_experts num_experts n_routed_experts num_experts_per_tok moe_layer_freq"
    ),
    "the built-in decoder sees the whole document; a model of transformers keeps the window of its configuration: "
    "backbone: {name: hf, config: {model_type: mistral, sliding_window: N}}": (
        "sliding_window window_size attention_window use_sliding_window"
    ),
    "the built-in decoder takes rope_base and scales no positions; a model of transformers does as its configuration "
    "says: backbone: {name: hf, model: FOLDER}": "rope_scaling rope_parameters rope_scaling_factor yarn",
    "train.gradient_checkpointing": (
        "gradient_checkpointing activation_checkpoint activation_checkpointing recompute_activations "
        "recompute_granularity"
    ),
    "an option layer of an encoder that has several; kosmos explain layer": (
        "vision_feature_layer mm_vision_select_layer select_layer vision_select_layer"
    ),
    "modalities split large media by an option of their processors; kosmos explain max_tiles": (
        "anyres image_aspect_ratio image_grid_pinpoints dynamic_image_size max_dynamic_patch max_num_tiles "
        "max_image_tiles do_image_splitting image_splitting split_image dynamic_tiling any_resolution max_img_size"
    ),
    "a modality's processor changes media at random in training; kosmos explain time_masks": (
        "specaug specaugment spec_augment augment augmentation transforms data_augmentation"
    ),
    "trackers": "report_to logger",
    "profile": "profiling profiler enable_profiling use_profiler profile_start_step profile_step_start",
    "output": "output_dir save_dir",
}
"""Fields, or what is to be said in place of one, to the names that other trainers have for it."""
_BY_NAME = {plain(name): said for said, names in ELSEWHERE.items() for name in names.split()}

OF_SOURCE = {
    "for N passes over a source beside one over the others name it N times in data.sources, each with another name, or "
    "weigh each source by its passes times its tokens, which kosmos data --check counts": (
        "epoch epochs num_epochs num_train_epochs passes num_passes repeat repeats num_repeats repetitions times "
        "upsample upsampling upsample_factor oversample oversampling"
    ),
}
"""What to say of keys that an entry of data.sources has not."""

HERE = {
    "data": {"data.sources.N.weight": "weight weights"},
}
"""As ``ELSEWHERE``, in a part of the run file alone: other parts have fields of these names."""

VALUES = {
    "train.device": {
        "Apple's GPU is not used; auto takes the CPU there": "mps metal",
        "did you mean cuda?": "gpu nvidia",
    },
    "train.precision": {
        "train.fp8 multiplies in 8 bits": "fp8 float8",
        "there is no fp16; did you mean bf16?": "fp16 float16 half",
        "did you mean bf16?": "bfloat16 bf16_mixed",
        "did you mean fp32?": "float32 full",
    },
}
"""What is to be said of values that other trainers have for a field."""

AROUND = {
    "backbone": ("freeze", "lora", "learning_rate"),
    "streams": ("freeze", "freeze_connector", "lora", "learning_rate", "connector_learning_rate"),
    "train": ("learning_rate", "weight_decay", "warmup_steps"),
}
"""Fields of a part of the run file that look like options of its components."""

SIZES = {
    "width": "hidden_size hidden_dim d_model n_embd embed_dim embedding_dim dim model_dim",
    "layers": "num_hidden_layers num_layers n_layers n_layer depth num_blocks",
    "heads": "num_attention_heads num_heads n_heads n_head nhead",
    "kv_heads": "num_key_value_heads num_kv_heads n_kv_heads num_query_groups multi_query_group_num",
    "ffn_width": "intermediate_size ffn_hidden_size ffn_dim d_ff mlp_dim feedforward_dim",
    "rope_base": "rope_theta rotary_base",
    "tie_embeddings": "tie_word_embeddings",
    "frame_rate_hz": "fps sample_fps sampling_fps target_fps",
    "num_frames": "nframes n_frames",
}
"""Options of our backbones, encoders and processors to the names that others have for them."""

COMPONENTS = {
    "metric": {
        "word_error_rate": "wer",
        "exact_match": "em accuracy acc",
        "bleu": "sacrebleu corpus_bleu",
        "macro_f1": "f1 f1_score f1_macro",
        "balanced_accuracy": "balanced_accuracy_score uar mean_recall bacc",
        "kappa": "cohen_kappa cohen_kappa_score cohens_kappa qwk quadratic_weighted_kappa",
    },
    "schedule": {
        "cosine": "cosine_with_min_lr cosine_schedule cosine_annealing cosine_with_warmup",
        "constant": "constant_with_warmup",
        "wsd": "warmup_stable_decay stable_decay trapezoidal trapezoid",
        "inverse_sqrt": "inverse_square_root inv_sqrt noam rsqrt",
    },
}
"""By kind, components to the names that others have for them."""

NO_COMPONENTS = {
    "metric": {
        "an answer that is written has no score to rank by, but kosmos eval --choices FILE --answers FILE writes the "
        "log-probability of each answer that is offered (docs: Evaluate, Area under the curve)": (
            "auc auroc roc_auc roc_auc_score average_precision auprc pr_auc"
        ),
    },
}
"""By kind, what is to be said of those that others have and nobody brings."""


def elsewhere(name: str, place: str = "backbone") -> str:
    """The path of the field that other trainers call so, or a sentence in its place; empty where none does.

    Args:
        place: of the part at which it stands: that of a stream has LoRA too.
    """
    said = _BY_NAME.get(plain(name), "")
    return said.replace("backbone.lora.", f"{place}.lora.") if place.startswith("streams.") else said


def size_elsewhere(name: str) -> str:
    """The option of a component that others call so; empty where none is known."""
    return next((ours for ours, names in SIZES.items() if plain(name) in map(plain, names.split())), "")


def here(name: str, part: str) -> str:
    """As ``elsewhere``, of a name that a part of the run file has not, and others have."""
    return next((said for said, names in HERE.get(part, {}).items() if plain(name) in map(plain, names.split())), "")


def of_source(name: str) -> str:
    """What is to be said of a name that an entry of data.sources has not, and others have; empty where nothing is."""
    return next((said for said, names in OF_SOURCE.items() if plain(name) in map(plain, names.split())), "")


def value_elsewhere(path: str, value: str) -> str:
    """What is to be said of a value that other trainers have for the field at ``path``; empty where nothing is."""
    known = VALUES.get(path, {}).items()
    return next((said for said, names in known if plain(value) in map(plain, names.split())), "")


def beside(path: str) -> tuple[str, ...]:
    """Fields that stand among the options of a component at ``path`` and are none of them."""
    return ("name", *AROUND[path]) if path in AROUND else ()


def around(path: str, name: str) -> str:
    """The field around the options of a component that a name among them was meant for; empty where none was.

    Args:
        path: of the options, such as ``streams.image.encoder``.
    """
    place, _, part = path.rpartition(".")
    place = place or path
    if (said := elsewhere(name, place)).startswith(f"{place}.lora."):
        return said
    fields = AROUND.get(place.partition(".")[0], ())
    meant = called if (called := said.rpartition(".")[2]) in fields else nearest(name, fields)
    trained = part == "connector" and meant == "freeze"  # which it always is
    return f"{place}.{meant}" if meant and not trained else ""


def no_component(kind: str, name: str) -> str:
    """What is to be said of a component that others have, and that cannot be one here; empty of any other."""
    known = NO_COMPONENTS.get(kind, {}).items()
    return next((said for said, names in known if plain(name) in map(plain, names.split())), "")


def component_elsewhere(kind: str, name: str) -> str:
    """The component of a kind that others call so; empty where none does."""
    known = COMPONENTS.get(kind, {}).items()
    return next((ours for ours, names in known if plain(name) in map(plain, names.split())), "")

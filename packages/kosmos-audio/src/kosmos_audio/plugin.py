"""What kosmos-audio brings. Nothing heavy is imported here."""

from __future__ import annotations

from collections.abc import Iterator

from kosmos import (
    CodecSpec,
    ConnectorSpec,
    CorpusSpec,
    DatasetSpec,
    EncoderSpec,
    LayoutSpec,
    ModalitySpec,
    hookimpl,
)

KOSMOS_API = 1

SUFFIXES = (
    ".wav",
    ".flac",
    ".mp3",
    ".ogg",
    ".oga",
    ".opus",
    ".m4a",
    ".aac",
    ".aif",
    ".aiff",
    ".aifc",
    ".au",
    ".caf",
    ".w64",
)


@hookimpl
def kosmos_modalities() -> Iterator[ModalitySpec]:
    yield ModalitySpec(
        name="audio",
        target="kosmos_audio.waveform:AudioProcessor",
        summary="Sound of any rate, channel count and length, as log-mel or samples.",
        encoder="logmel",
        connector="mlp",
        marks=("<audio>", "</audio>"),
        suffixes=SUFFIXES,
        sample_set="tones",
        has_time=True,
        full_scale=1.0,
    )


@hookimpl
def kosmos_encoders() -> Iterator[EncoderSpec]:
    yield EncoderSpec(
        name="logmel",
        target="kosmos_audio.logmel:LogMelEncoder",
        summary="Small convolutional transformer on log-mel frames, to train from scratch.",
    )
    yield EncoderSpec(
        name="wav2vec2",
        target="kosmos_audio.wav2vec2:Wav2Vec2Encoder",
        summary="torchaudio's wav2vec 2.0, HuBERT and WavLM on samples; random or local weights.",
    )
    yield EncoderSpec(
        name="conformer",
        target="kosmos_audio.conformer:ConformerEncoder",
        summary="torchaudio's Conformer on log-mel frames.",
    )
    yield EncoderSpec(
        name="whisper",
        target="kosmos_audio.whisper:WhisperEncoder",
        summary="The encoder of Whisper (transformers) on its own log-mel; random or local weights.",
    )


@hookimpl
def kosmos_connectors() -> Iterator[ConnectorSpec]:
    yield ConnectorSpec(
        name="paired",
        target="kosmos_audio.pairs:PairedConnector",
        summary="Pairs of cells averaged, a layer norm and a linear map, as Qwen2-Audio has it.",
    )


@hookimpl
def kosmos_layouts() -> Iterator[LayoutSpec]:
    yield LayoutSpec(
        name="qwen2-audio",
        target="kosmos_audio.layouts.qwen2_audio:Qwen2AudioLayout",
        summary="Qwen2AudioForConditionalGeneration of transformers: a Whisper, a linear map, a language model.",
    )


@hookimpl
def kosmos_codecs() -> Iterator[CodecSpec]:
    yield CodecSpec(
        name="mu-law",
        target="kosmos_audio.codecs.mu_law:MuLawCodec",
        summary="Samples as codes of 8 bits; needs no weights, for short sounds of low rates.",
        modality="audio",
    )
    yield CodecSpec(
        name="neural-audio",
        target="kosmos_audio.codecs.neural:NeuralAudioCodec",
        summary="Mimi, EnCodec and DAC (transformers), from a local folder.",
        modality="audio",
    )


@hookimpl
def kosmos_datasets() -> Iterator[DatasetSpec]:
    yield DatasetSpec(
        name="tones",
        target="kosmos_audio.samples:TonesSource",
        summary="Generated tones, sweeps and rhythms with descriptions.",
        modalities=("audio",),
    )


@hookimpl
def kosmos_corpora() -> Iterator[CorpusSpec]:
    of_texts = {
        "librispeech": "LibriSpeech: SPEAKER/CHAPTER/*.trans.txt beside the sounds.",
        "ljspeech": "LJ Speech: metadata.csv of ID|text|normalized text, and wavs/.",
        "vctk": "VCTK: txt/SPEAKER/*.txt, and wav48_silence_trimmed/ or wav48/.",
        "kaldi": "A data folder of Kaldi: wav.scp and text, segments, utt2spk.",
        "lhotse": "Manifests of Lhotse: cuts, or recordings and supervisions.",
    }
    for name, summary in of_texts.items():
        yield CorpusSpec(name=name, target=f"kosmos_audio.corpora.{name}:read", summary=summary)

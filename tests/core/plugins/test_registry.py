"""Components are found by kind and name, and built when a run asks for them."""

from __future__ import annotations

import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from kosmos.components import KINDS
from kosmos.errors import ConfigError, DataError, PluginError
from kosmos.hookspecs import HOOKS
from kosmos.plugins import Registry, load_plugins

Install = Callable[..., None]
Write = Callable[[str, str], ModuleType]

ECHO = """
@hookimpl
def kosmos_encoders():
    for name in ("small", "failing", "refusing", "absent", "lost", "leaving", "bare", "quits"):
        yield EncoderSpec(name=name, target=f"echo:{name}", summary="")
    yield EncoderSpec(name="needs", target="needs_it:make", summary="")
    yield EncoderSpec(name="nested", target="echo:Small.make", summary="")

def small(width_in: int, *, depth: int = 2):
    return Small(("small", width_in, depth))

class Small(tuple):
    input = width = forward = None
    make = staticmethod(small)

def bare():
    return object()

def quits():
    raise SystemExit(3)

def failing(*, depth: int = 1):
    raise RuntimeError("out of\\n luck")

def refusing():
    from kosmos.errors import DataError
    raise DataError("weights are damaged")
"""


@pytest.fixture
def echo(write: Write) -> Registry:
    return Registry.from_modules({"echo": write("echo", ECHO)})


def raised(registry: Registry, name: str) -> str:
    with pytest.raises(PluginError) as caught:
        registry.build("encoder", name, path="streams.sound.encoder")
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_every_kind_has_one_hook() -> None:
    assert list(HOOKS) == [spec.kind for spec in KINDS]


def test_a_component_is_built_with_its_arguments_and_checked_options(echo: Registry) -> None:
    assert echo.build("encoder", "small", 8, options={"depth": "3"}) == ("small", 8, 3)
    assert echo.build("encoder", "nested", 8) == ("small", 8, 2)


def test_wrong_options_name_their_place_in_the_run_file(echo: Registry) -> None:
    with pytest.raises(ConfigError, match=r"^streams\.sound\.encoder\.dept: unknown field; did you mean depth\?"):
        echo.build("encoder", "small", 8, options={"dept": 3}, path="streams.sound.encoder")


def test_an_option_of_another_component_of_the_kind_names_that(echo: Registry) -> None:
    says = r"^streams\.sound\.encoder\.depth: unknown field; small has it \(streams\.sound\.encoder\.name=small\)"
    with pytest.raises(ConfigError, match=says):
        echo.build("encoder", "refusing", options={"depth": 3}, path="streams.sound.encoder")


def test_a_misspelt_name_gets_the_nearest(echo: Registry) -> None:
    assert raised(echo, "smal").startswith("encoder 'smal': unknown; did you mean small? (encoders: ")


def test_a_misspelt_name_is_a_mistake_of_the_run_file_unless_a_plugin_may_be_why(write: Write) -> None:
    name = "smal"
    with pytest.raises(ConfigError, match="did you mean small") as misspelt:
        Registry.from_modules({"echo": write("echo", ECHO)}).get("encoder", name)
    assert (misspelt.value.code, misspelt.value.exit_status) == ("config", 2)
    assert isinstance(misspelt.value, PluginError)  # as it was before there was a kind of its own
    with pytest.raises(PluginError, match=r"did you mean small.*the broken plugin broken") as hidden:
        Registry.from_modules({"echo": write("echo", ECHO), "broken": "nowhere_to_be_found"}).get("encoder", name)
    assert (hidden.value.code, hidden.value.exit_status) == ("plugin", 3)


def test_a_name_that_nobody_brings_says_what_there_is(write: Write) -> None:
    registry = Registry.from_modules({"echo": write("echo", ECHO)}, core=False)
    assert raised(registry, "quux") == (
        "encoder 'quux': no installed plugin brings it (encoders: small, failing, refusing, absent, lost, leaving, "
        "bare, quits, needs, nested); install the package that does ('kosmos plugins' lists what is installed)"
    )


def test_a_factory_that_fails_is_chained_and_attributed(echo: Registry) -> None:
    with pytest.raises(PluginError) as caught:
        echo.build("encoder", "failing", path="streams.sound.encoder")
    assert str(caught.value) == (
        "streams.sound.encoder: encoder 'failing' of plugin echo (echo) cannot be made with these options: "
        "RuntimeError: out of luck (echo.py:27)"
    )
    assert isinstance(caught.value.__cause__, RuntimeError)


def test_what_a_factory_gives_has_what_its_kind_needs(echo: Registry) -> None:
    assert raised(echo, "bare") == (
        "streams.sound.encoder: encoder 'bare' of plugin echo (echo) is broken: it gives object, which has no input "
        "and no width and no forward; what EncoderSpec gives has input, width, forward"
    )


def test_a_factory_that_leaves_is_attributed(echo: Registry) -> None:
    assert raised(echo, "quits").endswith("cannot be made with these options: SystemExit: 3 (echo.py:24)")


def test_an_error_for_the_user_passes_unchanged(echo: Registry) -> None:
    with pytest.raises(DataError, match=r"^weights are damaged$"):
        echo.build("encoder", "refusing")


def test_a_target_without_the_attribute_is_attributed(echo: Registry) -> None:
    assert raised(echo, "lost") == "encoder 'lost' of plugin echo (echo) is broken: echo has no lost"


def test_a_target_that_needs_an_absent_module_says_what_to_install(echo: Registry, site: Path, write: Write) -> None:
    (site / "needs_it.py").write_text("import acme_lost.part\n")
    assert raised(echo, "needs") == (
        "encoder 'needs' of plugin echo (echo) cannot be imported: ModuleNotFoundError: No module named 'acme_lost' "
        "(needs_it.py:1); install it"
    )


def test_a_target_that_leaves_or_is_the_plugins_own_missing_module_gets_no_remedy(echo: Registry, site: Path) -> None:
    assert raised(echo, "needs").endswith("ModuleNotFoundError: No module named 'needs_it'")
    (site / "needs_it.py").write_text("raise SystemExit('bye')\n")
    assert raised(echo, "needs").endswith("cannot be imported: SystemExit: bye (needs_it.py:1)")


def test_a_missing_dependency_of_an_installed_plugin_names_its_distribution(install: Install) -> None:
    install("x", "@hookimpl\ndef kosmos_encoders(): yield EncoderSpec(name='x', target='acme_x:no.where', summary='')")
    with pytest.raises(PluginError, match=r"of plugin x \(acme-x 1\.2\) is broken: acme_x has no no"):
        load_plugins(only=["x"]).resolve("encoder", "x")


def test_uninstalling_a_plugin_takes_its_components_away_and_says_what_to_install(install: Install, site: Path) -> None:
    install(
        "sonar",
        "@hookimpl\ndef kosmos_modalities(): yield ModalitySpec(name='sonar', target='a:b', summary='', encoder='e')",
    )
    assert load_plugins(only=["sonar"]).owner("modality", "sonar").distribution == "acme-sonar"
    shutil.rmtree(site / "acme_sonar-1.2.dist-info")
    registry = load_plugins(only=[])
    with pytest.raises(PluginError, match=r"no installed plugin brings it .* it is named kosmos-sonar\)"):
        registry.get("modality", "sonar")


def test_only_the_plugins_named_are_loaded_beside_core(install: Install) -> None:
    install("sonar", "")
    assert [plugin.name for plugin in load_plugins(only=["sonar"]).plugins] == ["core", "sonar"]
    with pytest.raises(PluginError, match=r"plugin 'sonr' is not installed; did you mean sonar\?"):
        load_plugins(only=["sonr"])


def test_installed_plugins_are_loaded_once_a_process() -> None:
    assert load_plugins() is load_plugins()


def test_the_installed_plugins_have_no_problems() -> None:
    assert {plugin.label: plugin.problems for plugin in load_plugins().plugins if plugin.problems} == {}


def test_a_registry_travels_to_workers(echo: Registry) -> None:
    copy = pickle.loads(pickle.dumps(echo))
    assert copy.plugins == echo.plugins
    assert copy.build("encoder", "small", 8) == ("small", 8, 2)


def test_specs_are_a_copy(echo: Registry) -> None:
    echo.specs("encoder").clear()
    assert echo.get("encoder", "small").target == "echo:small"


def test_a_name_that_something_else_bears_is_told_whose_it_is(install: Install) -> None:
    install(
        "sonar",
        "@hookimpl\n"
        "def kosmos_modalities(): yield ModalitySpec(name='echo', target='a:b', summary='', encoder='e')\n"
        "@hookimpl\n"
        "def kosmos_datasets(): yield DatasetSpec(name='whales', target='a:b', summary='')",
    )
    registry = load_plugins(only=["sonar"])
    for name, said in {
        "sonar": r"plugin sonar \(acme-sonar 1.2\) brings echo",
        "acme-sonar": r"plugin sonar \(acme-sonar 1.2\) brings echo",
        "whales": "it is the name of a component of another kind, dataset",
        "echo echo": "write echo,echo",
    }.items():
        with pytest.raises(PluginError, match=rf"^modality '{name}': unknown; {said} \(modalities: echo\)"):
            registry.get("modality", name)


@pytest.mark.parametrize(
    ("modality", "said"),
    [
        ("image", r"from where kosmos-core came: pip install 'kosmos-vision>=26\.11'"),
        ("smell", "by convention it is named kosmos-smell"),  # which anybody could put on PyPI
    ],
)
def test_a_modality_that_nobody_brings_says_what_to_install(modality: str, said: str) -> None:
    with pytest.raises(PluginError, match=rf"no installed plugin brings it .*\({said}\)"):
        Registry.from_modules({}).get("modality", modality)


SOURCES = """
@hookimpl
def kosmos_datasets():
    for name in ("halves", "uncounted"):
        yield DatasetSpec(name=name, target=f"rows:{name}", summary="")

class halves:
    name = "halves"
    def __init__(self, split): pass
    def __len__(self): return 13.5
    def document(self, index): ...

class uncounted:
    name = "uncounted"
    def __init__(self, split): pass
    def document(self, index): ...
"""


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("halves", "halves.__len__: 'float' object cannot be interpreted as an integer; expected a whole number of"),
        ("uncounted", "it gives uncounted, which has no __len__; what DatasetSpec gives has name, document, __len__"),
    ],
)
def test_a_source_that_does_not_count_its_documents_is_named(write: Write, name: str, said: str) -> None:
    registry = Registry.from_modules({"rows": write("rows", SOURCES)})
    with pytest.raises(PluginError) as caught:
        registry.build("dataset", name, "train", path="data.sources.0")
    assert str(caught.value).startswith(f"data.sources.0: dataset '{name}' of plugin rows (rows) is broken: {said}")


def test_plugins_that_are_not_installed_stand_beside_those_that_are(write: Write) -> None:
    module = write("echo", ECHO)
    registry = load_plugins(beside={"mine": module})
    assert [plugin.name for plugin in registry.plugins] == [*(p.name for p in load_plugins().plugins), "mine"]
    assert registry.owner("encoder", "small").name == "mine"
    assert "small" not in load_plugins().specs("encoder")
    assert load_plugins(only=[], beside={"mine": module}).specs("modality") == {}
    with pytest.raises(ConfigError, match="beside: vision is an installed plugin's name; give yours another"):
        load_plugins(beside={"vision": module})
    with pytest.raises(ConfigError, match="beside: expected a mapping of names to modules, got"):
        load_plugins(beside=[module])  # type: ignore[arg-type]


def test_a_plugin_that_is_named_and_cannot_be_loaded_is_no_plugin() -> None:
    with pytest.raises(
        PluginError, match=r"^beside: plugin mine \(acme_lost\): cannot be imported: ModuleNotFoundError"
    ):
        load_plugins(beside={"mine": "acme_lost"})
    module = ModuleType("unmarked")
    with pytest.raises(PluginError, match=r"^beside: plugin mine \(unmarked\): states no KOSMOS_API; .* in unmarked$"):
        load_plugins(beside={"mine": module})

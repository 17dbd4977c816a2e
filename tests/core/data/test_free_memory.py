"""How much memory is free."""

from __future__ import annotations

import pytest

from kosmos.data.free_memory import Memory, memory, total_bytes

MIB = 1 << 20


@pytest.fixture
def system(tmp_path):
    """Write files as the system has them."""

    def write(**files):
        for name, content in {
            "proc/meminfo": "MemTotal: 8192 kB\nMemAvailable: 6144 kB\nHugePages_Total: 0\n",
            **files,
        }.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(content)
        return memory(tmp_path / "proc", tmp_path / "groups")

    return write


def test_memory_is_that_of_the_machine(system):
    assert system(**{"proc/self/cgroup": "0::/\n"}) == Memory(6 * MIB, 8 * MIB)


def test_a_group_that_has_less_counts_and_files_it_keeps_are_free(system):
    group = {
        "groups/job/memory.max": f"{4 * MIB}\n",
        "groups/job/memory.current": f"{3 * MIB}\n",
        "groups/job/memory.stat": f"anon 5\ninactive_file {2 * MIB}\n",
        "groups/job/task/memory.max": "max\n",
    }
    assert system(**{"proc/self/cgroup": "0::/job/task\n"}, **group) == Memory(3 * MIB, 4 * MIB)


def test_groups_of_the_first_version_are_known(system):
    group = {
        "groups/memory/job/memory.limit_in_bytes": f"{4 * MIB}\n",
        "groups/memory/job/memory.usage_in_bytes": f"{3 * MIB}\n",
        "groups/memory/job/memory.stat": "total_inactive_file 0\n",
    }
    assert system(**{"proc/self/cgroup": "5:cpu:/job\n4:memory:/job\n0::/\n"}, **group) == Memory(MIB, 4 * MIB)


def test_it_is_not_known_where_the_system_does_not_tell(tmp_path):
    assert memory(tmp_path, tmp_path) is None
    assert total_bytes(tmp_path, tmp_path) is None


@pytest.mark.parametrize("free", [6, 1])
def test_what_there_is_in_all_does_not_depend_on_what_is_free(system, tmp_path, free):
    system(**{
        "proc/meminfo": f"MemTotal: 8192 kB\nMemAvailable: {free << 10} kB\n",
        "proc/self/cgroup": "0::/job\n",
        "groups/job/memory.max": f"{4 * MIB}\n",
        "groups/job/memory.current": f"{2 * MIB}\n",
        "groups/job/memory.stat": "inactive_file 0\n",
    })  # fmt: skip
    assert total_bytes(tmp_path / "proc", tmp_path / "groups") == 4 * MIB

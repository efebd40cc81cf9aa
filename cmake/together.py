"""Which files of a target are compiled together: together.py BATCH <targets >groups.cmake

A line of the input is a target and its sources, separated by `;`. A file that keeps a name to itself (in a namespace
without a name, static, an alias, a macro) is kept apart from those that use the same name, unless it is the same alias.
What several targets have is compiled alone: where they are linked together, the first one's is taken.
"""
import collections
import pathlib
import re
import sys

DEFINED = [re.compile(pattern) for pattern in (
    r"#define (\w+)",
    r"(?:struct|class|enum class|enum|union) (\w+)",
    r"using (\w+) =",
    r"using [\w:]+::(\w+);",
    r"namespace (\w+) =",
    # A function or a variable, by the format of this repository: its type begins the line.
    r"[\w:<>,&*\s\[\]().]*?[ &*](\w+)(?:\(|\{| = |\[|;)",
)]
USED = re.compile(r"(?<![\w.:>])(\w+)")  # a name without its namespace means a neighbour's if it has one
# Literals and comments; 1'000 is no literal.
WORDS = re.compile(r"""R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|'(?:[^'\\\n]|\\[^\n]+?)'|//[^\n]*""", re.DOTALL)


def names_of(path):
    """({name that a file keeps to itself: what nobody else's may differ from}, all names that it uses)."""
    text = WORDS.sub('""', pathlib.Path(path).read_text().replace("\n}  // namespace\n", "\n} namespace\n"))
    own, every, is_own = {}, set(USED.findall(text)), False
    for line in text.splitlines():
        if line.startswith("namespace {"):
            is_own = True
        elif line == "} namespace":
            is_own = False
        elif line and line[0] not in " /}":
            name = next((found.group(1) for found in (pattern.match(line) for pattern in DEFINED) if found), None)
            if name:
                every.add(name)
                is_alias = line.startswith(("using ", "namespace "))
                if is_own or is_alias or line.startswith(("static ", "#define")):
                    own[name] = line if is_alias and line.endswith(";") else str(path)
    return own, every


def go_together(group, own, every):
    _, owned, used = group
    return (all(owned.get(name) == says for name, says in own.items() if name in used)
            and all(own.get(name) == says for name, says in owned.items() if name in every))


def groups_of(sources, size):
    """Neighbours first: they include the same headers."""
    groups = []  # [files, their own names, all their names]
    for source in sources:
        own, every = names_of(source)
        for group in reversed(groups):
            if len(group[0]) < size and go_together(group, own, every):
                break
        else:
            group = [[], {}, set()]
            groups.append(group)
        group[0].append(source)
        group[1] |= own
        group[2] |= every
    return [group[0] for group in groups if len(group[0]) > 1]


def main():
    size = int(sys.argv[1])
    lines = [line.split(";") for line in sys.stdin.read().splitlines()]
    uses = collections.Counter(source for _, *sources in lines for source in sources)
    for target, *sources in lines:
        groups = groups_of([source for source in sources if source and uses[source] == 1], size)
        if groups:
            print(f"set_target_properties({target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)")
        for number, group in enumerate(groups):
            files = " ".join(f'"{path}"' for path in group)
            print(f"set_source_files_properties({files} PROPERTIES UNITY_GROUP {target}_{number})")


if __name__ == "__main__":
    main()

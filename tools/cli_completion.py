"""`duckrow completion`: what a shell needs to complete the commands, made from their tables."""

from __future__ import annotations

from typing import Final

from .command import DONE, Args, Command, option
from .console import Console


def table() -> dict[str, tuple[str, list[str]]]:
    """What may follow: by the words so far, a sentence and the words and options."""
    from .cli import WORDS, commands

    found = {"": ("", [*WORDS, "--help", "--version"])}
    for word, said in WORDS.items():
        there = commands(word)
        verbs = [command.words.partition(" ")[2] for command in there]
        if verbs != [""]:
            found[word] = (said, verbs)
        for command in there:
            found[command.words] = (command.sentence, _options(command))
    return found


def _options(command: Command) -> list[str]:
    places = [choice for each in command.options if each.by_place for choice in each.choices]
    flags = [max(each.names, key=len) for each in command.all_options if not each.by_place]
    return [*places, *flags, "--help"]


def bash() -> str:
    cases = "".join(
        f'        "{words}") next="{" ".join(following)}" ;;\n'
        for words, (_, following) in table().items()
    )
    return _BASH.replace("CASES\n", cases)


def zsh() -> str:
    return f"{_ZSH}{bash()}"


def fish() -> str:
    lines = ["complete -c duckrow -f"]
    there = table()
    for words, (_, following) in there.items():
        first, _, verb = words.partition(" ")
        when = f"__fish_seen_subcommand_from {first}" if words else "__fish_use_subcommand"
        if verb:
            when += f"; and __fish_seen_subcommand_from {verb}"
        for each in following:
            what = f"-l {each[2:]}" if each.startswith("--") else f"-a {each}"
            said = there.get(f"{words} {each}".strip(), ("", []))[0].replace("'", "\\'")
            told = f" -d '{said}'" if said else ""
            lines.append(f"complete -c duckrow -n '{when}' {what}{told}")
    return "\n".join(lines) + "\n"


_ZSH: Final = """\
(( $+functions[compdef] )) || { autoload -U compinit && compinit; }
autoload -U +X bashcompinit && bashcompinit
"""
_BASH: Final = """\
_duckrow() {
    local words="" word next=""
    for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
        case "$word" in -*) break ;; esac
        words="${words:+$words }$word"
    done
    while :; do
        case "$words" in
CASES
        esac
        [ -n "$next" ] || [ -z "$words" ] && break
        case "$words" in *" "*) words="${words% *}" ;; *) words="" ;; esac
    done
    COMPREPLY=($(compgen -W "$next" -- "${COMP_WORDS[COMP_CWORD]}"))
    [ ${#COMPREPLY[@]} -gt 0 ] || COMPREPLY=($(compgen -f -- "${COMP_WORDS[COMP_CWORD]}"))
}
complete -F _duckrow duckrow
"""


def run(args: Args, console: Console) -> int:
    console.out.write({"bash": bash, "zsh": zsh, "fish": fish}[args.shell]().encode())
    return DONE


COMMANDS: Final = (
    Command(
        "completion",
        "Completion of these commands for a shell",
        run,
        (option("shell", said="which shell", choices=("bash", "zsh", "fish")),),
        (
            'eval "$(duckrow completion bash)"',
            "duckrow completion fish > duckrow.fish",
        ),
        more="In ~/.bashrc the first line makes it permanent; in ~/.zshrc it is the same with zsh.  fish reads\n"
        "what lies in ~/.config/fish/completions.",
    ),
)

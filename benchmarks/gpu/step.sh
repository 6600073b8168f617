# A step of `gpu.sh run`: a command with a time limit, run once, whose lines are kept. Sourced by run.sh.

# Whether a kind of step is in the phase. `export` and `engines` write a line of their own, others what their command prints.
in_phase() {
  case $phase in
    all) true ;;
    # The peer is compared with the reference as well.
    ours) [ "$1" = reference ] || [ "$1" = halves ] || [ "$1" = detect ] ;;
    peers) [ "$1" = reference ] || [ "$1" = peers ] ;;
    report) false ;;
    *) [ "$1" = "$phase" ] ;;
  esac
}

# step KIND NAME SECONDS PREFIX COMMAND…   Skipped if fewer SECONDS are left.
# PREFIX is added to each line; for `export` and `engines` it is the name of the command.
step() {
  local kind=$1 name=$2 needs=$3 prefix=$4 left begun outcome status=0 why=''
  shift 4
  in_phase "$kind" || return 0
  [ ! -e "$state/$name.done" ] && [ ! -e "$state/$name.failed" ] || return 0
  left=$((deadline - SECONDS))
  [ "$model" != small ] || needs=0
  if [ "$left" -le "$needs" ]; then
    postponed+=("$name")
    return 0
  fi
  printf '%(%T)T %s' -1 "$name" >&2
  begun=$EPOCHREALTIME
  timeout --kill-after=10 "$left" "$@" >"$state/$name.out" 2>"$log/$name.log" </dev/null || status=$?
  local seconds
  seconds=$(awk -v a="$begun" -v b="$EPOCHREALTIME" 'BEGIN { printf "%.2f", b - a }')
  case $status in
    0) outcome='done' ;;
    # Timed out or interrupted: the next call repeats it. Its output is kept until then.
    124 | 130 | 137 | 143) outcome=stopped why="after $seconds s" ;;
    *) outcome=failed why=$(grep -v '^ *$' "$log/$name.log" | tail -n 1 || true) ;;
  esac
  case $kind in
    export | engines)
      [ -z "$prefix" ] || [ $outcome != 'done' ] ||
        printf '{"command":"%s","seconds":%s}\n' "$prefix" "$seconds" >"$state/$name.export"
      ;;
    trackers) cp "$state/$name.out" "$state/$name.$kind" ;;
    halves | detect | video | peers) sed "s/^{/{$prefix,/" "$state/$name.out" >"$state/$name.$kind" ;;
  esac
  printf '{"step":"%s","status":"%s","seconds":%s,"why":"%s"}\n' "$name" "$outcome" "$seconds" "$(plain "$why")" \
    >"$state/$name.step"
  [ "$outcome" = stopped ] || touch "$state/$name.$outcome"
  say " $outcome, $seconds s${why:+: $why}"
  if [ $status = 130 ]; then
    exit 130
  fi
}

# Records a step that cannot run: missing NAME WHY
missing() {
  printf '{"step":"%s","status":"left out","seconds":0,"why":"%s"}\n' "$1" "$(plain "$2")" >"$state/$1.step"
}

# Escapes text for a JSON string.
plain() { LC_ALL=C tr -d '\000-\037' <<<"$1" | cut -c1-300 | sed 's/\\/\\\\/g; s/"/\\"/g'; }

# Assembles the folder of the run from the outputs of the steps, and writes its report.
assemble() {
  local kind file
  for kind in halves detect video peers trackers export step; do
    file=$results/$kind.jsonl
    [ $kind != step ] || file=$results/steps.jsonl
    # In order of completion.
    find "$state" -name "*.$kind" -printf '%T@ %p\n' | sort -n | cut -d' ' -f2- | xargs -r -d '\n' cat >"$file.new"
    mv "$file.new" "$file"
    [ -s "$file" ] || rm "$file"
  done
  "$programs/bench" report "$results" --output "$results/README.md"
  say "$results/README.md"
}

/**
 * The guard: a POSIX shell program that is sent along with each call and keeps what it decides on the sandbox's own
 * disk, so that nothing depends on the exec daemon's memory (E6).
 *
 * Its state is a row of files, `state.1`, `state.2` …; the last one stands. A step writes its state aside and gives it
 * the next number by `ln`, which fails when the number is taken: whoever is second reads again. So a check and its
 * effect are one, and a guard that is killed anywhere leaves no lock behind.
 *
 * `none → held → released → started → stopping → ended`, each at most once. Only who wins `released → started` runs
 * the command. Times are hundredths of a second of the sandbox's own uptime, which no clock setting moves.
 */
export const guardScript = `set -u
umask 077
PATH=$PATH:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
op=$1 uid=$2
shift 2
d=\${TMPDIR:-/tmp}/.holdfast/$uid
self=$$

say() { printf 'holdfast %s\\n' "$*"; }
row() { printf '%s' "$epoch $phase $by $hold $end $grace $pid $birth $started $kind $code $finished $load $message"; }
tell() { say "state $n $(row)"; say end; exit 0; }
accept() { say ok; tell; }
refuse() { say "refused $*"; tell; }
fault() { printf '%s\\n' "$1" >&2; exit 70; }
# Longer each time, to most of a second: looking costs the sandbox its own time.
naps=1
nap() {
  sleep "0.$naps" 2>/dev/null || sleep 1
  [ "$naps" -ge 8 ] || naps=$((naps + 1))
}
now() { read -r up rest < /proc/uptime; now=$(( \${up%.*} * 100 + 1\${up#*.} - 100 )); }

recall() {
  n=0 epoch=0 phase=none by=- hold=- end=- grace=- pid=- birth=- started=- kind=- code=- finished=- load=- message=-
  while [ -e "$d/state.$((n + 1))" ]; do n=$((n + 1)); done
  [ "$n" = 0 ] ||
    read -r epoch phase by hold end grace pid birth started kind code finished load message < "$d/state.$n"
}
tries=0
save() {
  mkdir -p "$d" || fault 'its folder can not be made'
  printf '%s\\n' "$(row)" > "$d/new.$self" || fault 'its state can not be written'
  ln "$d/new.$self" "$d/state.$((n + 1))" 2>/dev/null
  saved=$?
  rm -f "$d/new.$self"
  [ "$saved" = 0 ] && return 0
  tries=$((tries + 1))
  [ "$tries" -lt 100 ] || fault 'its state can not be moved on'
  return 1
}
ended() { phase=ended kind=$1 finished=$(date +%s) message=$2; }

stat_of() {
  line=
  { read -r line < "/proc/$1/stat"; } 2>/dev/null
  line=\${line##*) }
}
birth_of() { stat_of "$1"; set -- $line; seen=\${20:--}; }
alive() { birth_of "$pid"; [ "$seen" = "$birth" ]; }

# What carries the sandbox's mark, or is in the session that the command leads.
members() {
  session=-
  [ -s "$d/session" ] && read -r session < "$d/session"
  for file in $(grep -ls "HOLDFAST_SANDBOX=$uid" /proc/[0-9]*/environ 2>/dev/null); do
    file=\${file#/proc/}
    echo "\${file%/environ}"
  done
  [ "$session" = - ] ||
    sed -n "s/^\\([0-9]*\\) (.*) [^Z] [0-9]* [0-9]* $session .*/\\1/p" /proc/[0-9]*/stat 2>/dev/null
}
signal_all() { for one in $(members); do kill "-$1" "$one" 2>/dev/null; done; }
# Two looks in a row, because what forks and exits while the first one is taken can hide from it.
end_all() {
  empty=0 round=0
  while [ "$empty" -lt 2 ]; do
    if [ -z "$(members)" ]; then empty=$((empty + 1)); continue; fi
    empty=0 round=$((round + 1))
    [ "$round" -le "$1" ] || return 1
    signal_all KILL
    [ "$round" -lt 3 ] || nap
  done
}

# What time or a death has decided, whoever looks first. False: look again.
settle() {
  now
  case $phase in
    held)
      [ "$now" -lt "$hold" ] && return 0
      ended never_started 'nobody released it within its hold limit' ;;
    released)
      [ "$now" -lt "$end" ] && return 0
      ended deadline 'its time limit passed before it began' ;;
    started | stopping)
      alive && return 0
      [ -e "$d/state.$((n + 1))" ] && return 1
      end_all 20 || return 0
      ended lost 'what ran it is gone and left no record' ;;
    *) return 0 ;;
  esac
  save
  return 1
}
look() { recall; until settle; do recall; done; }

pump() {
  ( ulimit -c 0; ulimit -f "$blocks"; exec cat > "$d/$1" ) 2>/dev/null
  exec cat > /dev/null
}
watch() {
  self=$$.w
  while :; do
    naps=2
    nap
    recall
    [ "$phase" = started ] || break
    now
    [ "$now" -lt "$end" ] && continue
    phase=stopping kind=deadline
    save && break
  done
  [ "$phase" = stopping ] || exit 0
  signal_all TERM
  signal_all CONT
  now
  last=$((now + grace)) naps=1
  while [ "$now" -lt "$last" ]; do
    [ -n "$(members)" ] || exit 0
    nap
    now
  done
  until end_all 20; do sleep 1; done
}
run() {
  exec > /dev/null 2>&1 < /dev/null
  blocks=$(( ($1 + 511) / 512 + 1 ))
  rm -f "$d/out.pipe" "$d/err.pipe"
  mkfifo "$d/out.pipe" "$d/err.pipe" && : > "$d/out" && : > "$d/err" || printf 'no room for its output' > "$d/failed"
  code=-
  if [ ! -e "$d/failed" ]; then
    pump out < "$d/out.pipe" & out=$!
    pump err < "$d/err.pipe" & err=$!
    setsid /bin/sh "$d/launch.$load" "$d" > "$d/out.pipe" 2> "$d/err.pipe" & command=$!
    echo "$command" > "$d/session"
    watch & watcher=$!
    wait "$command"
    result=$?
    kill "$watcher" 2>/dev/null
    until end_all 20; do sleep 1; done
    # Somebody unknown may hold the other end of a pipe: what is read by then is what there is.
    ( sleep 5; kill "$out" "$err" ) & patience=$!
    wait "$out" "$err"
    kill "$patience" 2>/dev/null
  fi
  while :; do
    recall
    case $phase in started | stopping) ;; *) exit 0 ;; esac
    how=exited words=-
    [ "$phase" = stopping ] && how=$kind
    if [ -e "$d/failed" ]; then
      how=start_failed words=$(head -c 500 "$d/failed" | tr '\\n' ' ')
    else
      code=$result
    fi
    ended "$how" "$words"
    save && exit 0
  done
}

size() { bytes=0; [ ! -e "$d/$1" ] || bytes=$(wc -c < "$d/$1"); bytes=$((bytes)); }
changed_at() { [ -e "$d/$1" ] && date -r "$d/$1" +%s || echo 0; }
slice() {
  say "$1"
  count=$(($3 - $2))
  [ "$count" -gt "$4" ] && count=$4
  [ "$count" -gt 0 ] || return 0
  tail -c "+$(($2 + 1))" "$d/$1" | head -c "$count" | { base64 -w 4000 2>/dev/null || base64; }
}

case $op in
  put)
    mkdir -p "$d" && printf '%s' "$HOLDFAST_PART" | base64 -d > "$d/part.$1.$2" || fault 'a part can not be written'
    say ok
    say end ;;
  claim)
    for tool in base64 cat date grep head kill ln mkfifo rm sed setsid sleep tail tr wc; do
      command -v "$tool" > /dev/null 2>&1 || { recall; refuse invalid "its image has no $tool"; }
    done
    while :; do
      look
      if [ "$phase" = none ]; then
        [ "$6" = new ] || refuse lost
        part=0
        mkdir -p "$d" && printf '%s' "$HOLDFAST_PART" | base64 -d > "$d/launch.$4" || fault 'its program can not be written'
        while [ "$part" -lt "$5" ]; do
          cat "$d/part.$4.$part" >> "$d/launch.$4" || fault 'a part is missing'
          part=$((part + 1))
        done
        epoch=$1 phase=held hold=$((now + $2)) grace=$3 load=$4
        save || { rm -f "$d/launch.$4"; continue; }
        rm -f "$d/part."*
        accept
      fi
      [ "$load" = "$4" ] || rm -f "$d/part.$4."*
      [ "$load" != - ] || refuse retired
      [ "$1" -ge "$epoch" ] || refuse superseded
      [ "$1" != "$epoch" ] || accept
      epoch=$1
      save && accept
    done ;;
  retire)
    while :; do
      look
      [ "$phase" = none ] || accept
      ended never_started 'another object has its name'
      save && accept
    done ;;
  fence)
    while :; do
      look
      [ "$phase" != none ] || refuse gone
      [ "$1" -ge "$epoch" ] || refuse superseded
      [ "$1" != "$epoch" ] || accept
      epoch=$1
      save && accept
    done ;;
  release)
    while :; do
      look
      [ "$phase" != none ] || refuse gone
      [ "$1" -ge "$epoch" ] || refuse superseded
      [ "$by" = - ] || accept
      [ "$phase" = held ] || refuse stopping
      [ "$1" = "$epoch" ] || refuse invalid "fence epoch $1 before releasing with it"
      [ "$2" -gt 0 ] || refuse invalid 'nothing is left of the deadline'
      phase=released by=$1 end=$((now + $2))
      save && accept
    done ;;
  stop)
    while :; do
      look
      [ "$1" -ge "$epoch" ] || refuse superseded
      raised=$epoch
      epoch=$1
      case $phase in
        none | held) ended never_started 'it was stopped before it was released' ;;
        released) ended stopped 'it was stopped before its command began' ;;
        started) phase=stopping kind=stopped ;;
        *) [ "$raised" != "$1" ] || accept ;;
      esac
      save && accept
    done ;;
  run)
    while :; do
      look
      [ "$phase" = released ] || accept
      birth_of $$
      phase=started pid=$$ birth=$seen started=$(date +%s)
      save && break
    done
    run "$1" ;;
  look)
    look
    accept ;;
  wait)
    now
    until=$((now + $2))
    while [ ! -e "$d/state.$(($1 + 1))" ] && [ "$now" -lt "$until" ]; do nap; now; done
    look
    accept ;;
  read)
    now
    until=$((now + $4))
    while :; do
      look
      size out
      out=$bytes
      size err
      err=$bytes
      [ "$phase" != ended ] && [ "$out" -le "$1" ] && [ "$err" -le "$2" ] && [ "$now" -lt "$until" ] || break
      nap
    done
    say "log $out $(changed_at out) $err $(changed_at err)"
    slice out "$1" "$out" "$3"
    slice err "$2" "$err" "$3"
    accept ;;
  *) fault "there is no $op" ;;
esac
`;

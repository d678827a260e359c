#!/usr/bin/env bash
# Lets systemd write small journal files, compact and regular, keyed and unkeyed, compressed and not, into a folder: what
# the target journal_edits corrupts.
#
#   fuzz/journals.sh FOLDER
set -euo pipefail
folder=$1
mkdir -p "$folder"
writer=/lib/systemd/systemd-journal-remote
[ -x "$writer" ] || { echo "$writer is missing: apt install systemd-journal-remote" >&2; exit 1; }

entries() {
  local units=(iotedge.service aziot-edged.service cron.service) long
  long=$(printf 'word %.0s' $(seq 400))
  for n in $(seq 0 59); do
    printf '__REALTIME_TIMESTAMP=%d\n__MONOTONIC_TIMESTAMP=%d\n_BOOT_ID=%032d\n' $((1790000000000000 + n)) $((n + 1)) 1
    printf '_SYSTEMD_UNIT=%s\nPRIORITY=6\nMESSAGE=line %d %s\n\n' "${units[n % 3]}" "$n" "$([ $((n % 8)) != 0 ] || echo "$long")"
  done
}

for compact in 0 1; do
  for keyed in 0 1; do
    for compress in 0 1; do
      file=$folder/compact$compact-keyed$keyed-compress$compress.journal
      rm -f "$file"
      entries | SYSTEMD_JOURNAL_COMPACT=$compact SYSTEMD_JOURNAL_KEYED_HASH=$keyed SYSTEMD_JOURNAL_COMPRESS=$compress \
        "$writer" --compress=$([ $compress = 1 ] && echo yes || echo no) --output="$file" - >/dev/null 2>&1
      journalctl --quiet --verify --file "$file" >/dev/null 2>&1 || { echo "$file is not sound" >&2; exit 1; }
    done
  done
done
ls -l "$folder"

#!/bin/sh
# In place of the `ottla` binary in unit tests: what the console runs of `ottla bench`.
case "$2" in
list)
  echo g
  echo "  g/s  A title"
  ;;
compare) echo "$3 against $4" ;;
# Not a command of `ottla bench`: a run that ends at once.
print)
  echo "$1 $2"
  echo "progress: 5 rec/s" >&2
  echo out/a-1.json
  ;;
# No text, and more after it.
bytes)
  printf '\377\n'
  echo after
  ;;
# Leaves a process behind that keeps the output open.
orphan)
  sleep 25 &
  echo begun
  exit 1
  ;;
flood) head -c 9000000 /dev/zero | tr '\0' x ;;
# Does not do what it is asked.
stubborn)
  trap '' TERM
  echo begun
  while :; do sleep 0.05; done
  ;;
# Until it is asked to stop.
run)
  trap 'echo saved; exit 130' TERM
  echo begun
  echo "progress: at work" >&2
  while :; do sleep 0.05; done
  ;;
esac

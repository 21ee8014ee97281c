#!/bin/sh
# collect-program.sh PROGRAM DIRECTORY: copies a program with the shared libraries that it needs, so that it also runs
# on a distribution that has others. DIRECTORY/bin/PROGRAM starts it. Only the C library is the system's own: it can
# run programs that were built for older ones.
set -eu
program=$(command -v "$1")
name=${program##*/}
mkdir -p "$2/bin" "$2/lib" "$2/libexec"
cp -L "$program" "$2/libexec/$name"

needed=$(ldd "$program")
if printf '%s\n' "$needed" | grep 'not found' >&2; then
  echo "collect-program.sh: these libraries of $program are missing" >&2
  exit 1
fi
printf '%s\n' "$needed" | while read -r library arrow file _; do
  [ "$arrow" = "=>" ] || continue # the loader, and the kernel's own
  case $library in
    libc.so.* | libm.so.* | libpthread.so.* | libdl.so.* | librt.so.* | libresolv.so.* | libutil.so.*) ;;
    *) cp -L "$file" "$2/lib/" ;;
  esac
done

cat > "$2/bin/$name" <<END
#!/bin/sh
place=\$(dirname "\$(dirname "\$(readlink -f "\$0")")")
LD_LIBRARY_PATH="\$place/lib" exec "\$place/libexec/$name" "\$@"
END
chmod +x "$2/bin/$name"

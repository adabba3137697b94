# Prints the Python that `make` makes .venv with: of those on PATH from 3.11 on, an optimised build before others, the
# newest before others, one that the tests have not run on only where there is no other. Prints nothing where there is none.
here=$(dirname "$0")
for name in python3 python3.15 python3.14 python3.13 python3.12 python3.11; do
    # A name may occur in several folders of PATH; a build that is not optimised may hide one that is.
    IFS=:
    for folder in $PATH; do
        [ -x "$folder/$name" ] && "$folder/$name" "$here/support/ottla_testing/interpreter.py" --rank 2>/dev/null
    done
    unset IFS
done | sort -k 1,1nr -k 2,2Vr -s | head -n 1 | cut -d ' ' -f 3-

echo hello | kcat -b 127.0.0.1:9092 -t greetings -P
kcat -b 127.0.0.1:9092 -t greetings -C -o beginning -e

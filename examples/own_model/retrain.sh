# Trains a candidate and reports it back, as docs/events.md says. SERVICE, KEY and VERSION are given; MODEL, JOB and URL are the event's.

curl -fsS -H "Authorization: Bearer $KEY" "$URL?part=train" -o rows.arrow
outrider convert wine.py:again --to wine_$VERSION.onnx --sample data/sample.csv

cat >> outrider.toml <<END

[models.$MODEL.challengers.$VERSION]
onnx = "wine_$VERSION.onnx"
END
outrider reload

curl -fsS -H "Authorization: Bearer $KEY" -H "Content-Type: application/json" "$SERVICE/v1/retrains" \
     -d '{"model": "'$MODEL'", "candidate": "'$VERSION'", "job": "'$JOB'"}'
echo

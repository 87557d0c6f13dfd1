OTHERS = "__other__"

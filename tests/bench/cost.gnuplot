# SPDX-License-Identifier: Apache-2.0
#
# tests/bench/run: gnuplot -e "points='cost.dat'; picture='cost.svg'" cost.gnuplot
# The columns are those of PlotPoints (report.cc).
set terminal svg size 1000,640 enhanced font "DejaVu Sans,13" background rgb "white"
set output picture
set datafile missing "?"
set title "Keeping kubelet's iptables rules: time against the number of services\n{/*0.85 median wall time of one pass, IPv4 and IPv6, both axes logarithmic}"
set xlabel "services of kube-proxy's beside them (3 endpoints each, both families)"
set ylabel "wall time"
set logscale xy
set xrange [8:40000]
set yrange [0.0005:100000]
set xtics ("0" 10, "100" 100, "1,000" 1000, "10,000" 10000, "30,000" 30000)
set ytics ("1 µs" 0.001, "10 µs" 0.01, "100 µs" 0.1, "1 ms" 1, "10 ms" 10, "100 ms" 100, "1 s" 1000, "10 s" 10000, "100 s" 100000)
set grid xtics ytics lc rgb "#dddddd" lw 1
set key outside right center Left reverse spacing 1.6 samplen 3
set border 3
set tics nomirror
# kubelet's sequence dashed, the agent solid; legacy iptables warm colours, nf_tables cold ones.
plot points using 1:2 with linespoints lw 2 dt (8,5) pt 6 ps 0.8 lc rgb "#b2182b" title "kubelet, legacy, cold", \
     points using 1:3 with linespoints lw 2 dt (8,5) pt 4 ps 0.8 lc rgb "#f4a582" title "kubelet, legacy, warm", \
     points using 1:4 with linespoints lw 2 pt 7 ps 0.8 lc rgb "#b2182b" title "agent, legacy, cold", \
     points using 1:5 with linespoints lw 2 pt 5 ps 0.8 lc rgb "#f4a582" title "agent, legacy, check", \
     points using 1:6 with linespoints lw 2 dt (8,5) pt 6 ps 0.8 lc rgb "#2166ac" title "kubelet, nf\\_tables, cold", \
     points using 1:7 with linespoints lw 2 dt (8,5) pt 4 ps 0.8 lc rgb "#67a9cf" title "kubelet, nf\\_tables, warm", \
     points using 1:8 with linespoints lw 2 pt 7 ps 0.8 lc rgb "#2166ac" title "agent, nf\\_tables, cold", \
     points using 1:9 with linespoints lw 2 pt 9 ps 0.9 lc rgb "#1b7837" title "agent, whole program, warm", \
     points using 1:10 with linespoints lw 2 pt 5 ps 0.8 lc rgb "#67a9cf" title "agent, nf\\_tables, check", \
     points using 1:11 with linespoints lw 2 pt 11 ps 0.9 lc rgb "#762a83" title "agent, has anything changed?"

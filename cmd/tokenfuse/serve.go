package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tokenfuse/tokenfuse/functions/generate/chatapi"
	"github.com/tokenfuse/tokenfuse/internal/admission"
	"github.com/tokenfuse/tokenfuse/internal/clock"
	"github.com/tokenfuse/tokenfuse/internal/environ"
	"github.com/tokenfuse/tokenfuse/internal/server"
	"github.com/tokenfuse/tokenfuse/internal/version"
)

type serveCommand struct {
	Listen         string        `default:":8080" help:"Address for callers; port 0 takes a free one."`
	AdminListen    string        `default:"127.0.0.1:8081" help:"Address for administrators, who need a key of admin.keys; port 0 takes a free one."`
	Config         string        `default:"tokenfuse.yaml" env:"TOKENFUSE_CONFIG" help:"The configuration's file."`
	LimitsTable    string        `default:"tokenfuse-limits" env:"LIMITS_TABLE" help:"DynamoDB's table of the buckets."`
	SpendTable     string        `default:"tokenfuse-spend" env:"SPEND_TABLE" help:"DynamoDB's table of the spend events."`
	CreateTables   bool          `help:"Make the tables if they are not there: on-demand, and without the template's backups and protection."`
	TLSCert        string        `name:"tls-cert" and:"tls" help:"File of the certificate and its chain, in PEM (default: no TLS, as behind a load balancer)." placeholder:"FILE"`
	TLSKey         string        `name:"tls-key" and:"tls" help:"File of its key." placeholder:"FILE"`
	TrustedProxies []string      `help:"Networks of the proxies whose X-Forwarded-For and X-Forwarded-Proto are believed, separated by commas (default: nobody is)." placeholder:"CIDR"`
	PublicURL      string        `name:"public-url" help:"Scheme and host by which callers know this server (default: what each request says)." placeholder:"URL"`
	Metrics        string        `enum:"none,emf" default:"none" help:"Where metrics go: none, or emf: standard output, as lines of CloudWatch's Embedded Metric Format."`
	AlarmEvery     time.Duration `default:"5m" help:"How often spending is compared with its threshold; 0s: not by this process."`
	Notice         time.Duration `default:"0s" help:"How long new calls are still taken after SIGTERM, while /readyz answers 503."`
	Drain          time.Duration `default:"20s" help:"How long calls in flight then have to end. Their settle may take 5s more."`
}

func (c *serveCommand) Run(ctx context.Context, s streams) error {
	proxies, err := server.ParseProxies(c.TrustedProxies)
	if err != nil {
		return fmt.Errorf("--trusted-proxies: %w", err)
	}
	public, err := publicURL(c.PublicURL)
	if err != nil {
		return err
	}
	for name, d := range map[string]time.Duration{"--alarm-every": c.AlarmEvery, "--notice": c.Notice, "--drain": c.Drain} {
		if d < 0 {
			return fmt.Errorf("%s must not be below 0", name)
		}
	}
	var certificate *tls.Config
	if c.TLSCert != "" {
		pair, err := tls.LoadX509KeyPair(c.TLSCert, c.TLSKey)
		if err != nil {
			return fmt.Errorf("--tls-cert and --tls-key: %w", err)
		}
		certificate = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	}
	log := environ.NewLog(s.out)
	slog.SetDefault(log)
	p, err := load(c.Config, s)
	if err != nil {
		return err
	}
	own, err := c.build(ctx, s, p, log)
	if err != nil {
		return err
	}
	options := server.Options{
		Handler: own.chat, Ready: &server.Readiness{Check: own.check}, TLS: certificate, Proxies: proxies, Public: public,
		AnswerTime: p.LongestCall(), Notice: c.Notice, Drain: c.Drain, SettleTime: admission.SettleMargin, Stopped: chatapi.ErrStopped, Log: log,
	}
	listener, err := net.Listen("tcp", c.Listen)
	if err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	defer listener.Close()
	var admins net.Listener
	if own.admin != nil {
		if admins, err = net.Listen("tcp", c.AdminListen); err != nil {
			return fmt.Errorf("--admin-listen: %w", err)
		}
		defer admins.Close()
	}
	return own.serve(ctx, listener, admins, options, c.AlarmEvery)
}

// publicURL reads the address by which callers know the server: a path would be one that
// this server does not know.
func publicURL(text string) (*url.URL, error) {
	if text == "" {
		return nil, nil //nolint:nilnil // there is none
	}
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || u.Scheme != "http" && u.Scheme != "https" || u.Path != "" && u.Path != "/" {
		return nil, errors.New("--public-url must be a scheme and a host, such as https://ai.example.com")
	}
	return u, nil
}

// serve serves callers and administrators until ctx ends, runs the alarm beside, and gives
// back what the process holds of the pools when the last call has settled.
func (f *served) serve(ctx context.Context, listener, admins net.Listener, o server.Options, every time.Duration) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	all, ctx := errgroup.WithContext(ctx) // what fails ends the rest in order
	all.Go(func() error { return server.Serve(ctx, listener, o) })
	go f.chat.Keep(ctx)
	go f.pages.Keep(ctx, nil)
	at := []any{"version", version.Number, "address", listener.Addr().String(), "tls", o.TLS != nil}
	if admins != nil {
		private := o
		private.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { f.admin.Now().ServeHTTP(w, r) })
		private.TLS, private.Proxies, private.Public = nil, nil, nil
		go f.admin.Keep(ctx, nil)
		all.Go(func() error { return server.Serve(ctx, admins, private) })
		at = append(at, "admin_address", admins.Addr().String())
	}
	if every > 0 {
		all.Go(func() error { clock.Every(ctx, every, f.alarmOnce); return nil })
	}
	f.log.Info("tokenfuse serves", at...)
	err := all.Wait()
	ending, done := context.WithTimeout(context.Background(), admission.SettleTime)
	defer done()
	f.chat.Close(ending)
	f.log.Info("tokenfuse has ended", "error", err)
	return err
}

// alarmOnce runs spendalarm. Those of other processes may run at the same time: one of
// them pages. It must not take the calls down with it, whatever happens to it.
func (f *served) alarmOnce(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, alarmTime)
	defer cancel()
	defer func() {
		if v := recover(); v != nil {
			f.log.Error("panic", "value", fmt.Sprint(v))
		}
	}()
	_, _ = f.alarm.Run(ctx) // it says itself how it went
}

// alarmTime bounds a run of spendalarm, as the template does.
const alarmTime = 2 * time.Minute
